"What networks cost: parameters, multiply-adds, time and memory, side by side."
