"""polyhead.transformers: tiny random models of other people's, beside eager and sdpa."""
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch in this Python")
transformers = pytest.importorskip("transformers", reason="no transformers in this Python")

import polyhead  # noqa: E402
import polyhead.transformers  # noqa: E402

torch.set_num_threads(1)  # the models are small
COMMON = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
          "intermediate_size": 48, "vocab_size": 60, "max_position_embeddings": 64}
LLAMA = {**COMMON, "num_key_value_heads": 2, "head_dim": 8}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 60,
      "decoder_start_token_id": 0}
GPT2 = {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64, "vocab_size": 60}
MODELS = {
    "bert": ("Bert", "BertForMaskedLM", COMMON),
    "gpt2": ("GPT2", "GPT2LMHeadModel", GPT2),
    "llama": ("Llama", "LlamaForCausalLM", LLAMA),
    "mistral": ("Mistral", "MistralForCausalLM", {**LLAMA, "sliding_window": 4}),
    "gemma2": ("Gemma2", "Gemma2ForCausalLM", {**LLAMA, "sliding_window": 4,
                                               "attn_logit_softcapping": 2.0}),
    "gpt-oss": ("GptOss", "GptOssForCausalLM", {**LLAMA, "num_local_experts": 2,
                                                "num_experts_per_tok": 1,
                                                "sliding_window": 4}),
    "t5": ("T5", "T5ForConditionalGeneration", T5),
}
LEFT, RIGHT = [[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9], [[1] * 9, [1, 1, 1, 1, 1, 0, 0, 0, 0]]


def make(name, implementation, **changes):
    config, model, options = MODELS[name]
    torch.manual_seed(4)
    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0} \
        if name == "bert" else {"dropout_rate": 0.0} if name == "t5" else \
        {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0} if name == "gpt2" else {}
    made = getattr(transformers, config + "Config")(**{**options, **plain, **changes},
                                                    pad_token_id=0, eos_token_id=59)
    made._attn_implementation = implementation
    return getattr(transformers, model)(made).eval()


def inputs(name, mask=None):
    torch.manual_seed(6)
    ids = torch.randint(1, 59, (2, 9))
    given = {"input_ids": ids}
    if mask:
        given["attention_mask"] = torch.tensor(mask)
    if name == "t5":
        given["decoder_input_ids"] = torch.randint(1, 59, (2, 6))
    return given


def real(name, mask, logits):
    """Padding rows are 0 with us and a mean in eager: only real tokens count."""
    return logits if mask is None or name == "t5" else logits[torch.tensor(mask).bool()]


# Both compute in float32: two layers, each of sums of at most 48 terms five times over.
BOUND = 2 * 5 * 64 * 2.0**-24


@pytest.mark.parametrize("mask", [None, LEFT, RIGHT], ids=["whole", "left", "right"])
@pytest.mark.parametrize("name", MODELS)
def test_outputs(name, mask):
    given = inputs(name, mask)
    with torch.no_grad():
        want = real(name, mask, make(name, "eager")(**given).logits)
        found = real(name, mask, make(name, "polyhead")(**given).logits)
    assert (found - want).abs().max() <= BOUND * max(1, want.abs().max())


@pytest.mark.parametrize("name", [name for name in MODELS if name != "bert"])
def test_generation_with_caches(name):
    given = inputs(name, LEFT)
    given.pop("decoder_input_ids", None)
    texts = [make(name, how).generate(**given, max_new_tokens=6, do_sample=False)
             for how in ("eager", "polyhead")]
    assert torch.equal(*texts)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5"])
def test_ten_training_losses(name):
    losses = []
    for how in ("sdpa", "polyhead"):
        model, given = make(name, how).train(), inputs(name, RIGHT)
        optimiser = torch.optim.SGD(model.parameters(), 0.05)
        labels = given.get("decoder_input_ids", given["input_ids"])
        found = []
        for _ in range(10):
            loss = model(**given, labels=labels).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            found.append(loss.detach())
        losses.append(torch.stack(found))
    # the difference of a step is carried on by the others
    assert (losses[0] - losses[1]).abs().max() <= 10 * BOUND * losses[0].max()
    assert losses[1][-1] < losses[1][0]


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_attention_weights(name):
    given = inputs(name)
    with torch.no_grad():
        want = make(name, "eager")(**given, output_attentions=True).attentions
        found = make(name, "polyhead")(**given, output_attentions=True).attentions
    assert len(found) == len(want) == 2
    for a, b in zip(found, want):
        assert a.shape == b.shape and (a - b).abs().max() <= BOUND


def test_summaries():
    model, given = make("llama", "polyhead"), inputs("llama")
    with torch.no_grad():
        with polyhead.transformers.record(model, top_k=2) as heads:
            model(**given)
        weights = model(**given, output_attentions=True).attentions
    assert [name for name, _ in heads.calls] == ["model.layers.0.self_attn",
                                                 "model.layers.1.self_attn"]
    for (_, found), full in zip(heads.calls, weights):
        assert (found["col_sum"] - full.sum(2)).abs().max() <= 16 * 2.0**-24 * 9
        assert torch.equal(found["top_weight"], full.topk(2).values)
    model(**given)
    assert len(heads.calls) == 2  # nothing is kept outside


def memory(name):
    """VmRSS: what the process has now; VmHWM: the most that it had."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


def peak_of_summaries(model, length):
    """Bytes that the process has more at the peak of a call than before it."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # VmHWM starts again at VmRSS
    except OSError:
        pytest.skip("this system does not let a process measure its peak memory")
    before = memory("VmRSS")
    with torch.no_grad(), polyhead.transformers.record(model, top_k=4) as heads:
        model(torch.ones(1, length, dtype=torch.long), use_cache=False)
    assert len(heads.calls) == 2
    return memory("VmHWM") - before


def test_summaries_take_memory_for_each_token_only():
    """Four times the tokens, four times the memory, where weights would take sixteen times as
    much: 64 MiB of each head. Below 8 MiB a peak is that of code and of the allocator."""
    model = make("llama", "polyhead", max_position_embeddings=4096)
    short, long = peak_of_summaries(model, 1024), peak_of_summaries(model, 4096)
    assert long <= 4 * max(short, 8 << 20), (short, long)


def test_dropout_is_drawn_anew():
    model = make("gpt2", "polyhead", attn_pdrop=0.5).train()
    given = inputs("gpt2")
    assert not torch.equal(model(**given).logits, model(**given).logits)


def test_refused():
    model = make("llama", "polyhead").double()
    with pytest.raises(polyhead.Error, match="float64"):
        model(**inputs("llama"))
    model = make("gemma2", "polyhead")
    with pytest.raises(polyhead.Error, match="additive"):
        model(inputs("gemma2")["input_ids"], attention_mask=torch.zeros(2, 1, 9, 9))


# ---- replace_heads -----------------------------------------------------------------------

MODELS_MORE = {"roberta": ("Roberta", "RobertaForMaskedLM", COMMON),
               "qwen2": ("Qwen2", "Qwen2ForCausalLM", LLAMA)}
REPLACEABLE = ("bert", "gpt2", "llama", "mistral", "roberta", "qwen2")
replace_heads = polyhead.transformers.replace_heads


@pytest.fixture
def more_models(monkeypatch):
    for name, model in MODELS_MORE.items():
        monkeypatch.setitem(MODELS, name, model)


@pytest.mark.parametrize("variant", [None, "talking"])
@pytest.mark.parametrize("mask", [None, LEFT, RIGHT], ids=["whole", "left", "right"])
@pytest.mark.parametrize("name", REPLACEABLE)
def test_replaced_heads_start_as_the_model(more_models, name, mask, variant):
    """All weights are carried over, and talking heads start as the identity."""
    model, given = make(name, "sdpa"), inputs(name, mask)
    with torch.no_grad():
        want = real(name, mask, model(**given).logits)
        fresh = replace_heads(model, variant)
        found = real(name, mask, model(**given).logits)
    assert list(fresh.values()) == [["w_logits", "w_weights"] if variant else []] * 2
    assert (found - want).abs().max() <= BOUND * max(1, want.abs().max())


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_replaced_heads_train(name):
    model, given = make(name, "sdpa"), inputs(name, RIGHT)
    fresh = replace_heads(model, "moh:shared=1,top=2")
    assert all(names == ["moh_wr", "moh_wh"] for names in fresh.values())
    routers = [p for path, p in model.named_parameters() if "moh_wr" in path]
    optimiser, losses = torch.optim.SGD(model.train().parameters(), 0.05), []
    for _ in range(5):
        optimiser.zero_grad()
        losses.append(model(**given, labels=given["input_ids"]).loss)
        losses[-1].backward()
        assert len(routers) == 2 and all(p.grad.abs().max() > 0 for p in routers)
        optimiser.step()
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_replaced_heads_generate(name):
    given = inputs(name, LEFT)
    model = make(name, "sdpa")
    want = model.generate(**given, max_new_tokens=6, do_sample=False)
    replace_heads(model, None)
    assert torch.equal(model.generate(**given, max_new_tokens=6, do_sample=False), want)


def test_replaced_heads_share_the_mean_of_keys():
    model = make("llama", "sdpa")
    old = model.model.layers[0].self_attn.k_proj.weight.detach()
    assert replace_heads(model, "mqa")["model.layers.0.self_attn"] == []
    new = model.model.layers[0].self_attn.heads.wk
    assert torch.equal(new, (old[:8].T + old[8:].T) / 2)


def test_replaced_heads_keep_their_state():
    """The checkpoint of a changed model fits one whose heads were replaced alike."""
    first, second = make("gpt2", "sdpa"), make("gpt2", "sdpa")
    for model in (first, second):
        replace_heads(model, "dcmha:rank=2")
    given = inputs("gpt2")
    assert not torch.equal(first(**given).logits, second(**given).logits)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(**given).logits, second(**given).logits)


def test_replaced_heads_refuse():
    with pytest.raises(polyhead.Error, match="t5 model, expected one of Bert, Roberta, GPT2"):
        replace_heads(make("t5", "sdpa"), "talking")
    with pytest.raises(polyhead.Error, match="default"):
        replace_heads(make("llama", "sdpa", rope_parameters={
            "rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}), "talking")
    model, given = make("llama", "sdpa"), inputs("llama")
    with pytest.raises(polyhead.Error, match="mohsa has 4, 2 and 2 heads"):
        replace_heads(model, "mohsa")
    model(**given)  # nothing has been replaced
    replace_heads(model, "entmax:alpha=1.5")
    with pytest.raises(polyhead.Error, match="use_cache=False"):
        model(**given, use_cache=True)
    with pytest.raises(polyhead.Error, match="weights"):
        model(**given, output_attentions=True)
