"The skeleton of all networks: what is not in a flat module of its own."
