"What a training is made of: processes, loader, optimiser, callbacks, metrics, checkpoints."
