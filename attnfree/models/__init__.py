"Networks beside the vocabulary: baselines, converted weights, dense prediction."
