"""Leave-one-out errors of ridge decoders in closed form."""
