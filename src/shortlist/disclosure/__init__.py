"""What a model gets to read: tools and hits at three levels of detail, inside a budget of tokens."""
