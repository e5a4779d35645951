"""How a dense layer is tied to its prior: the couplings, how much of the prior is mixed in, and when."""
