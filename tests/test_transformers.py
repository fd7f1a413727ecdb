"What people do with language models in transformers and peft; CI runs it with two versions."
import os, subprocess, sys

import pytest, torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

transformers = pytest.importorskip('transformers')
from transformers import (AutoModelForCausalLM, AutoModelForMaskedLM,
                          AutoModelForSequenceClassification, AutoTokenizer, Trainer,
                          TrainingArguments)

from attnfree.hub import attnfree_hub
from attnfree.language import create_model, model_names
from attnfree.learner import load, save_run
from attnfree.mixer import randomise
from attnfree.run.generation import generate
from attnfree.text.tokens import ByteTokenizer, train_pieces
from attnfree.transformers import (AttnfreeConfig, AttnfreeForCausalLM, AttnfreeForMaskedLM,
                                   AttnfreeForSequenceClassification, TextCache, decay_groups,
                                   from_run, tokenizer_for)

CAUSAL = [name for name in model_names() if name.startswith('lm_') and '_mini_' in name]
WHOLE = [name for name in model_names() if name.startswith('mlm_') and '_mini_' in name]
GREEDY = dict(max_new_tokens=20, do_sample=False)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1), torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def network(name, kind=None, **options):
    kind = kind or (AttnfreeForCausalLM if name in CAUSAL else AttnfreeForMaskedLM)
    options = dict(vocab_size=40, n=16) | options
    return randomise(kind(AttnfreeConfig(name, **options)), std=0.1).eval()


def texts(vocab_size=40):
    "Three texts of different lengths, padded on the left, and the mask."
    lengths, longest = (3, 7, 12), 12
    ids = torch.randint(1, vocab_size, (3, longest))
    mask = (torch.arange(longest) >= longest - torch.tensor(lengths)[:, None]).long()
    return ids*mask, mask, lengths


@pytest.mark.parametrize('name', CAUSAL)
def test_texts_are_continued_as_by_generate(name):
    "Alone and in a batch, with cache and without, each beyond its window; beams and samples too."
    model, (ids, mask, lengths) = network(name), texts()
    together = model.generate(ids, attention_mask=mask, **GREEDY)[:, 12:]
    for row, length, found in zip(ids, lengths, together):
        start = row[None, 12-length:]
        assert_close(found, torch.stack([*generate(model.model, start, 20, temperature=0)])[:, 0])
    within = dict(GREEDY, max_new_tokens=4)
    for more in (dict(), dict(num_beams=3), dict(do_sample=True, top_k=5, num_return_sequences=2)):
        found = []
        for cached in (True, False):
            torch.manual_seed(1)
            found.append(model.generate(ids, attention_mask=mask, use_cache=cached,
                                        **within | more))
        assert_close(*found)


@pytest.mark.parametrize('name', CAUSAL)
def test_a_long_prompt_is_cut_as_ours_is(name):
    model, prompt = network(name), torch.randint(40, (2, 37))
    ours = torch.stack([*generate(model.model, prompt, 20, temperature=0)], 1)
    assert_close(model.generate(prompt, **GREEDY)[:, 37:], ours)


@pytest.mark.parametrize('name', CAUSAL)
def test_padding_changes_nothing(name):
    "Scores and losses of padded texts are those of each alone, on either side."
    model, (ids, mask, lengths) = network(name), texts()
    losses = []
    for row, length in zip(ids, lengths):
        text = row[None, 12-length:]
        losses.append(model(text, labels=text).loss*(length - 1))
    for turn in (False, True):
        given, seen = (ids.flip(1), mask.flip(1)) if turn else (ids, mask)
        if turn: given = torch.stack([torch.cat([row[12-n:], row[:12-n]])
                                      for row, n in zip(ids, lengths)])
        out = model(given, seen, labels=given)
        assert_close(out.loss*sum(n - 1 for n in lengths), sum(losses))
        for use_cache in (False, True):
            scores = model(given, seen, use_cache=use_cache).logits
            for row, row_scores, n in zip(ids, scores, lengths):
                alone = model(row[None, 12-n:]).logits[0]
                assert_close(row_scores[:n] if turn else row_scores[12-n:], alone)


@pytest.mark.parametrize('name', WHOLE)
def test_whole_texts_read_no_padding(name):
    model = network(name)
    ids, mask = torch.randint(1, 40, (2, 12)), torch.ones(2, 12, dtype=torch.long)
    mask[1, 7:] = 0
    out = model(ids, mask, labels=ids.where(mask == 1, -100))
    assert_close(out.logits[1:, :7], model(ids[1:, :7]).logits)
    assert out.loss.isfinite()


@pytest.mark.parametrize('name', ['lm_aft_full_mini_256', 'lm_gmlp_mini_256', 'mlm_amlp_mini_128'])
def test_construction_keeps_initial_values(name):
    options = dict(vocab_size=40, n=16)
    def seeded(make):
        torch.manual_seed(3)
        return make().state_dict()
    kind = AttnfreeForCausalLM if name in CAUSAL else AttnfreeForMaskedLM
    auto = AutoModelForCausalLM if name in CAUSAL else AutoModelForMaskedLM
    ours = seeded(lambda: create_model(name, **options))
    for make in (lambda: kind(AttnfreeConfig(name, **options)),
                 lambda: auto.from_config(AttnfreeConfig(name, **options))):
        assert_close({key.removeprefix('model.'): value for key, value in seeded(make).items()},
                     ours, rtol=0, atol=0)


@pytest.mark.parametrize('name', [*CAUSAL, *WHOLE])
def test_what_is_saved_is_loaded(name, tmp_path):
    "To the bit, in one file and in several; in half precision only if it is asked for."
    model = network(name)
    kind = AutoModelForCausalLM if name in CAUSAL else AutoModelForMaskedLM
    for size in ('1GB', '100KB'):
        model.save_pretrained(tmp_path/size, max_shard_size=size)
        again = kind.from_pretrained(tmp_path/size)
        assert type(again) is type(model) and not again.training
        assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert len([*(tmp_path/'100KB').glob('*.safetensors')]) > 1
    half = kind.from_pretrained(tmp_path/'1GB', dtype=torch.bfloat16)
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
    ids = torch.randint(40, (1, 8))
    assert half(ids).logits.isfinite().all()
    if name in CAUSAL: half.generate(ids, **GREEDY)


def test_a_new_head_is_initialised_and_lost_weights_are_refused(tmp_path):
    network('mlm_gmlp_mini_128').save_pretrained(tmp_path)
    fresh = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=5)
    head = fresh.model.readout.head
    assert 0 < head.weight.std() < 0.03 and head.bias.abs().max() == 0
    classes = network('mlm_gmlp_mini_128', AttnfreeForSequenceClassification, num_labels=3)
    classes.save_pretrained(tmp_path/'classes')
    masked = AutoModelForMaskedLM.from_pretrained(tmp_path/'classes')
    assert_close(masked.model.body.state_dict(), classes.model.body.state_dict())
    assert masked.model.readout.bias.abs().max() == 0
    names = load_file(tmp_path/'model.safetensors')
    for lost in (next(n for n in names if '.mixer.' in n), 'model.stem.words.weight'):
        save_file({key: value for key, value in names.items() if key != lost},
                  tmp_path/'model.safetensors', metadata=dict(format='pt'))
        with pytest.raises(ValueError, match=f'the file lacks {lost}'):
            AutoModelForMaskedLM.from_pretrained(tmp_path)


class Texts(torch.utils.data.Dataset):
    "Texts of 2 to 16 tokens, so that the parts of a step differ in tokens."
    def __init__(self, classes=0):
        draw = torch.Generator().manual_seed(0)
        self.ids = torch.randint(1, 40, (160, 16), generator=draw)
        self.lengths = torch.randint(2, 17, (160,), generator=draw)
        self.classes = classes
    def __len__(self): return len(self.ids)
    def __getitem__(self, i):
        mask = (torch.arange(16) < self.lengths[i]).long()
        labels = self.ids[i].where(mask == 1, -100)
        if self.classes: labels = self.ids[i, 0] % self.classes
        return dict(input_ids=self.ids[i], attention_mask=mask, labels=labels)


def trained(folder, kind, name, parts=1, resume=None, **options):
    torch.manual_seed(0)
    model = kind(AttnfreeConfig(name, vocab_size=40, n=16, **options))
    arguments = TrainingArguments(
        folder, max_steps=20, per_device_train_batch_size=8//parts,
        gradient_accumulation_steps=parts, save_steps=10, logging_steps=5, report_to=[],
        use_cpu=True, seed=3, disable_tqdm=True)
    optimiser = torch.optim.AdamW(decay_groups(model, 0.1), lr=1e-3, fused=True)
    texts = Texts(3 if kind is AttnfreeForSequenceClassification else 0)
    trainer = Trainer(model, arguments, train_dataset=texts, optimizers=(optimiser, None))
    trainer.train(resume_from_checkpoint=resume)
    losses = [row['loss'] for row in trainer.state.log_history if 'loss' in row]
    return model.state_dict(), losses


def test_smoothed_labels_are_the_next_tokens(tmp_path):
    pytest.importorskip('accelerate')
    model = randomise(AttnfreeForCausalLM(AttnfreeConfig('lm_gmlp_mini_256', vocab_size=40, n=16)))
    arguments = TrainingArguments(tmp_path, label_smoothing_factor=1e-6, report_to=[], use_cpu=True)
    ids = torch.randint(1, 40, (4, 8))
    batch = dict(input_ids=ids, labels=ids)
    smoothed = Trainer(model.eval(), arguments).compute_loss(model, dict(batch))
    assert_close(smoothed, model(**batch).loss, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('kind, name', [
    (AttnfreeForCausalLM, 'lm_aft_local_mini_256'), (AttnfreeForCausalLM, 'lm_gmlp_mini_256'),
    (AttnfreeForMaskedLM, 'mlm_amlp_mini_128'),
    (AttnfreeForSequenceClassification, 'mlm_gmlp_mini_128')])
def test_trainer_accumulates_and_resumes(kind, name, tmp_path):
    pytest.importorskip('accelerate')
    options = dict(num_labels=3) if kind is AttnfreeForSequenceClassification else {}
    whole, losses = trained(tmp_path/'whole', kind, name, **options)
    assert losses[-1] < losses[0]
    parts, in_parts = trained(tmp_path/'parts', kind, name, parts=4, **options)
    torch.testing.assert_close(torch.tensor(in_parts), torch.tensor(losses), rtol=1e-3, atol=1e-3)
    for key, value in parts.items(): assert_close(value, whole[key], rtol=0, atol=2e-4)
    first, _ = trained(tmp_path/'first', kind, name, drop=0.1, **options)
    again, _ = trained(tmp_path/'second', kind, name, drop=0.1,
                       resume=tmp_path/'first'/'checkpoint-10', **options)
    assert_close(again, first, rtol=0, atol=0)


@pytest.mark.parametrize('name', [*CAUSAL, *WHOLE])
def test_lora_on_every_linear_layer(name):
    "Each adapter changes the scores and gets a gradient; steps use it; merged is the same."
    peft = pytest.importorskip('peft')
    model, ids = network(name), torch.randint(40, (2, 16))
    before = model(ids).logits.detach()
    linear = [n for n, m in model.named_modules() if type(m) is torch.nn.Linear]
    assert any('.mixer.' in n for n in linear)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=linear))
    own = {n: p for n, p in adapted.named_parameters() if 'lora_' in n}
    for p in own.values(): torch.nn.init.normal_(p, std=0.1)
    scores = adapted(ids).logits
    assert (scores - before).abs().max() > 0.01
    scores.square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in own.values())
    assert sum(len(group['params']) for group in decay_groups(adapted)) == len(own)
    spared = decay_groups(peft.get_peft_model(network(name), peft.LoraConfig(
        r=2, target_modules=linear, modules_to_save=['words'])))[1]['params']
    words = tuple(model.get_input_embeddings().weight.shape) # which masked models' papers decay
    assert [tuple(p.shape) for p in spared] == [words]*(name in CAUSAL)
    if name in CAUSAL:
        told = adapted.generate(input_ids=ids[:, :4], max_new_tokens=8, do_sample=False)
        uncached = adapted.generate(input_ids=ids[:, :4], max_new_tokens=8, do_sample=False,
                                    use_cache=False)
        assert_close(told, uncached)
    merged = adapted.merge_and_unload()
    assert_close(merged(ids).logits, scores.detach(), rtol=1e-4, atol=1e-4)


def test_a_stranger_loads_a_published_writer(tmp_path, capsys):
    "The command's folder, in a new process that imports transformers only."
    attnfree_hub('lm_aft_local_mini_256', str(tmp_path/'writer'))
    assert 'trust_remote_code=True' in capsys.readouterr().out
    card = (tmp_path/'writer'/'README.md').read_text()
    assert 'library_name: transformers' in card and 'pipeline_tag: text-generation' in card
    script = '''if True:
        import sys
        from transformers import pipeline
        write = pipeline('text-generation', sys.argv[1], trust_remote_code=True, device='cpu')
        print(repr(write('The history of ', max_new_tokens=30, do_sample=False)))'''
    environment = os.environ | dict(HF_HOME=str(tmp_path/'hub'), HF_HUB_OFFLINE='1')
    done = subprocess.run([sys.executable, '-c', script, tmp_path/'writer'], text=True,
                          capture_output=True, timeout=200, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    told = eval(done.stdout.splitlines()[-1])[0]['generated_text']
    model, _ = load('lm_aft_local_mini_256')
    start = torch.tensor([[*b'The history of ']])
    ours = torch.stack([*generate(model, start, 30, temperature=0)])[:, 0].tolist()
    assert told == 'The history of ' + bytes(ours).decode(errors='replace')


def test_what_a_state_cannot_do_is_refused():
    model, ids = network('lm_aft_local_mini_256'), torch.randint(40, (1, 5))
    with pytest.raises(ValueError, match='stateful|assisted'):
        model.generate(ids, assistant_model=model, **GREEDY)
    with pytest.raises(ValueError, match='is a DynamicCache: pass the TextCache'):
        model(ids, past_key_values=transformers.DynamicCache())
    long = torch.randint(40, (1, 17))
    for call in (lambda: model(long, use_cache=True), lambda: model(long),
                 lambda: model.generate(ids, use_cache=False, **GREEDY),
                 lambda: network('mlm_gmlp_mini_128')(long)):
        with pytest.raises(ValueError, match='was built for 16: shorten'): call()
    held = TextCache()
    model(ids, past_key_values=held)
    with pytest.raises(ValueError, match='a loss is that of whole texts'):
        model(ids, labels=ids, past_key_values=held)
    with pytest.raises(ValueError, match='2 texts, but the cache holds 1'):
        model(ids.repeat(2, 1), past_key_values=held)
    with pytest.raises(ValueError, match='attention_mask has shape'):
        model(ids, ids[:, :3])


def test_a_refused_call_leaves_the_cache_as_it_was():
    model, ids = network('lm_aft_local_mini_256'), torch.randint(40, (2, 18))
    caches = [TextCache(), TextCache()]
    for held in caches: model(ids[:, :15], past_key_values=held)
    for wrong in (ids[:, 15:], ids[:, :1] + 40): # too many for all scores; no id of its own
        with pytest.raises(ValueError): model(wrong, past_key_values=caches[0])
    found = [model(ids[:, 15:].int(), past_key_values=held, logits_to_keep=1) for held in caches]
    assert_close(*[one.logits for one in found], rtol=0, atol=0)
    assert caches[0].get_seq_length() == 18


def test_rows_that_end_early_are_padded():
    "Bytes have no id for padding: the tokenizer's own is never looked up."
    model = from_run('lm_aft_local_mini_256')
    tokenizer = tokenizer_for('lm_aft_local_mini_256')
    prompts = ['The history of ', 'It is a city in ']
    options = dict(max_new_tokens=150, do_sample=False, eos_token_id=ord('.'))
    batch = tokenizer(prompts, padding=True, return_tensors='pt')
    rows = model.generate(**batch, pad_token_id=tokenizer.pad_token_id, **options)
    for row, prompt in zip(rows, prompts):
        alone = model.generate(tokenizer(prompt, return_tensors='pt').input_ids, **options)
        told = tokenizer.decode(row, skip_special_tokens=True)
        assert told == tokenizer.decode(alone[0])
        assert told.endswith('.') or len(told) > 150


@pytest.mark.parametrize('kind', ['bytes', 'pieces'])
def test_a_text_cannot_hold_special_tokens(kind, tmp_path):
    "Where a network writes: what stands there are letters, as in its training."
    ours = ByteTokenizer() if kind == 'bytes' else train_pieces(['[MASK]s and a [PAD] of it']*9, 60)
    model = dict(name='lm_aft_simple_mini_256', vocab_size=ours.size, n=64)
    save_run(tmp_path, dict(task='lm', model=model, data=dict(n=64, vocab_size=ours.size)))
    ours.save(tmp_path/'tokenizer.json')
    tokenizer_for(tmp_path).save_pretrained(tmp_path/'saved')
    for tokenizer in (tokenizer_for(tmp_path), AutoTokenizer.from_pretrained(tmp_path/'saved')):
        text = '[MASK]s and a [PAD] of it'
        assert tokenizer(text).input_ids == ours.encode(text).tolist()
    assert tokenizer_for('lm_gmlp_mini_256')('a[PAD]').input_ids == [*b'a[PAD]']


@pytest.mark.parametrize('name', ['lm_aft_local_mini_256', 'mlm_amlp_mini_128'])
def test_checkpointing_gives_the_same_gradients(name):
    model, ids = network(name), torch.randint(40, (2, 16))
    gradients = []
    for _ in range(2):
        model.train().zero_grad()
        model(ids, labels=ids).loss.backward()
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters()})
        model.gradient_checkpointing_enable()
        assert model.is_gradient_checkpointing
    assert_close(*gradients)


def test_nothing_else_imports_transformers(tmp_path):
    "And the command says what to install, in its last line."
    script = '''if True:
        import sys
        sys.modules['transformers'] = None # as if it were not installed
        import attnfree, attnfree.language, attnfree.learner, attnfree.hub, attnfree.train
        import attnfree.run.hub, attnfree.run.cards, attnfree.tasks
        attnfree.hub.attnfree_hub('lm_gmlp_mini_256', 'writer')'''
    done = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True,
                          timeout=200, cwd=tmp_path)
    assert done.stderr.strip().endswith("pip install 'attnfree[transformers]'"), done.stderr
    assert done.returncode == 1 and not [*tmp_path.iterdir()]
