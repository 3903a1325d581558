"""What may be trusted: the scanner that reads definitions, pins that notice changes, and reviews that release them."""
