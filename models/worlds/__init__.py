"""Small worlds to plan in: environments that show pictures, and the training of world models for them."""
