"""From a model that does not export, or exports wrong, to the part at fault and ways out."""
