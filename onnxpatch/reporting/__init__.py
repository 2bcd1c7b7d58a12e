"""What a check found and what a file says of itself, as objects, text and a documented schema."""
