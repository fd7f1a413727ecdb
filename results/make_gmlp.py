r"""Writes the files that nbs/results/01_gmlp.ipynb reads, except the table of costs.

    python results/make_gmlp.py             # all, in the project's root
    python results/make_gmlp.py gaps tasks  # only the two tables of networks for text

| WHAT     | writes                                 | from                                    |
|----------|----------------------------------------|-----------------------------------------|
| gaps     | mlm_mini.csv                           | m_*, all four                           |
| tasks    | finetuned_mini.csv                     | f_*, all five                           |
| pictures | gmlp.npz                               | m_gmlp_mini_free, f_mnli_amlp            |

`attnfree_bench --case gmlp` writes bench_gmlp.csv. The runs are made by these commands, with
SST-2 and MNLI in ATTNFREE_DATA; enwik8.txt is the first 4,150,000 bytes of enwik8. (The
stored files come from version 0.1.0, with its initial weights and recipes.)

    for name in bert_mini_rel gmlp_mini{,_free} amlp_mini; do
        attnfree_train --data text --task mlm --path enwik8.txt --tokenizer pieces \
            --model mlm_${name}_128 --epochs 2 --set bs=32 --set lr=2e-3 --set warmup_epochs=0.1 \
            --set precision=bf16 --set threads=1 --out runs/m_$name
    done
    sst2="--data sst2 --epochs 1 --set size=48"
    mnli="--data mnli --epochs 2"
    shared="--set lr=5e-4 --set precision=bf16 --set threads=1"
    attnfree_train $sst2 --start runs/m_gmlp_mini $shared --out runs/f_sst2_gmlp
    attnfree_train $sst2 --tokenizer runs/m_gmlp_mini/tokenizer.json --model mlm_gmlp_mini_128 \
        $shared --out runs/f_sst2_scratch
    attnfree_train $mnli --start runs/m_gmlp_mini $shared --out runs/f_mnli_gmlp
    attnfree_train $mnli --start runs/m_amlp_mini $shared --out runs/f_mnli_amlp
    attnfree_train $mnli --start runs/m_bert_mini_rel $shared --out runs/f_mnli_bert
"""
from making import main

GAPS = ['bert_mini_rel', 'gmlp_mini', 'gmlp_mini_free', 'amlp_mini']
TASKS = ['sst2_gmlp', 'sst2_scratch', 'mnli_gmlp', 'mnli_amlp', 'mnli_bert']
PAIR = 17  # the held-out pair of MNLI that is drawn


def gaps_command(model):
    "The command that trains `model` to fill gaps."
    return (f'attnfree_train --data text --task mlm --path enwik8.txt --tokenizer pieces '
            f'--model mlm_{model}_128 --epochs 2 --set bs=32 --set lr=2e-3 '
            '--set warmup_epochs=0.1 --set precision=bf16 --set threads=1')


def task_command(task, begin):
    "The command that trains for a task; `begin` says from a run or from scratch."
    size = '--epochs 1 --set size=48' if task == 'sst2' else '--epochs 2'
    return (f'attnfree_train --data {task} {size} {begin} '
            '--set lr=5e-4 --set precision=bf16 --set threads=1')


SCRATCH = '--tokenizer runs/m_gmlp_mini/tokenizer.json --model mlm_gmlp_mini_128'
COMMANDS = {f'm_{name}': gaps_command(name) for name in GAPS}
COMMANDS |= {'f_sst2_gmlp': task_command('sst2', '--start runs/m_gmlp_mini'),
             'f_sst2_scratch': task_command('sst2', SCRATCH),
             'f_mnli_gmlp': task_command('mnli', '--start runs/m_gmlp_mini'),
             'f_mnli_amlp': task_command('mnli', '--start runs/m_amlp_mini'),
             'f_mnli_bert': task_command('mnli', '--start runs/m_bert_mini_rel')}


def gaps(runs, out):
    "A table of the networks that fill gaps: parameters and perplexities."
    import pandas as pd
    from attnfree.learner import load
    rows = []
    for name in GAPS:
        metrics = pd.read_csv(runs/f'm_{name}'/'metrics.csv')
        model, _ = load(runs/f'm_{name}')
        rows.append({'network': name, 'in blocks': sum(p.numel() for p in model.body.parameters()),
                     'after 1': metrics.perplexity[0], 'perplexity': metrics.perplexity[1],
                     'per byte': metrics.byte_perplexity[1]})
    pd.DataFrame(rows).round(3).to_csv(out/'mlm_mini.csv', index=False)
    return ['mlm_mini.csv']


def tasks(runs, out):
    "A table of the networks for SST-2 and MNLI: accuracy after each epoch."
    import pandas as pd
    rows = []
    for name in TASKS:
        accuracy = pd.read_csv(runs/f'f_{name}'/'metrics.csv').accuracy
        task, network = name.split('_')
        rows.append({'task': task, 'network': network,
                     **{f'after {i+1}': value for i, value in enumerate(accuracy)}})
    pd.DataFrame(rows).round(4).to_csv(out/'finetuned_mini.csv', index=False)
    return ['finetuned_mini.csv']


def attention_maps(run):
    "Maps of the tiny attention for one held-out pair of MNLI, and the pair's tokens."
    from attnfree.data import mnli
    from attnfree.learner import load
    from attnfree.text import load_tokenizer
    from attnfree.visualise import tiny_attention_maps
    tokenizer = load_tokenizer(run/'tokenizer.json')
    held = mnli(size=128, bs=32, tokenizer=tokenizer).valid_ds
    ids, segments = (part[None] for part in held[PAIR][:2])
    length = int((ids != 0).sum())
    model, _ = load(run)
    maps = tiny_attention_maps(model, ids, segments).values[:,0]
    return maps[:,:length,:length], tokenizer.names(ids[0,:length].numpy())


def pictures(runs, out):
    "Store what is drawn: the weights of untied gates, and the maps of the tiny attention."
    import numpy as np
    from attnfree.learner import load
    from attnfree.visualise import spatial_weights

    free = spatial_weights(load(runs/'m_gmlp_mini_free')[0]).values
    maps, tokens = attention_maps(runs/'f_mnli_amlp')
    np.savez_compressed(out/'gmlp.npz', free=free.astype(np.float16),
                        maps=np.asarray(maps, dtype=np.float16), tokens=np.array(tokens))
    return ['gmlp.npz']


MAKERS = {
    'gaps': (gaps, [f'm_{name}' for name in GAPS]),
    'tasks': (tasks, [f'f_{name}' for name in TASKS]),
    'pictures': (pictures, ['m_gmlp_mini_free', 'f_mnli_amlp'])}

if __name__ == '__main__': main(__doc__, MAKERS, COMMANDS)
