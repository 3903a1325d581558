"""Programs that call tools: their names and signatures in Python, the sandbox that runs them, and what they did."""
