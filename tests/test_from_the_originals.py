"""The page for people who hold an original repository names all that theirs names, and only options that exist here."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer

from offramp.cli.app import app
from tests.pages.reading import prose, text_of

PAGE = "docs/how-to/from-the-originals.md"
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
SHARED = """task_name data_dir output_dir overwrite_output_dir config_name tokenizer_name
        do_lower_case cache_dir max_seq_length per_gpu_train_batch_size
        gradient_accumulation_steps per_gpu_eval_batch_size learning_rate weight_decay
        adam_epsilon max_grad_norm num_train_epochs max_steps warmup_steps save_steps
        eval_all_checkpoints seed fp16 fp16_opt_level local_rank no_cuda training_args.bin"""
NAMED = {
    "DeeBERT": """train.sh train_highway.sh eval_highway.sh eval_entropy.sh model_type model_name_or_path
        early_exit_entropy eval_each_highway eval_highway eval_after_first_stage plot_data_dir
        entropy_<S>.npy each_layer.npy eval_results.txt overwrite_cache""",
    "RomeBERT": """scripts/train_high.sh new_scripts/train_high.sh eval_high_layer.sh eval_high_entropy.sh
        test_sd.sh test_sd+gr.sh gamma temper gp ge kd_loss_type beta irange moco momentum
        download_glue_data.py mrpc.tsv""",
    "ElasticBERT and ELUE": """run_glue.py run_elue.py run_elue_entropy.py run_elue_patience.py flops_counter.py
        num_hidden_layers num_output_layers max_output_layers early_exit_entropy patience
        regression_threshold do_train do_eval do_infer evaluate_during_training logging_steps
        early_stop_steps warmup_rate eval_all_checkpoints not_save_model load log_dir debug
        elasticbert-base elasticbert-large elasticbert-chinese-base""",
    "ELBERT": """glue_run.sh change_config.py weight_name w_init w_lr thres_name bias_1 bias_2 bias_3
        exit_thres cnt_thres margin range_tmp num_exit_layers pooler_input use_out_pooler fc_size1
        use_fc2 fc_size2 model_name my_out_dir num_exit idx_lst exit_config_path out_mode
        eval_results.txt shared exit_layer_name kd_ use_dml use_label_smooth thres_lst
        exit_weight_lst""",
    "EBERT": """train_bert_glue.sh train_ebert_glue.sh train_roberta_glue.sh train_eroberta_glue.sh
        train_bert_squad1_1.sh train_ebert_squad1_1.sh train_bert_squad2_0.sh
        train_ebert_squad2_0.sh head_mask_mode ffn_mask_mode fill_mode loss_lambda
        target_flops_ratio sparsity_target predictor_lr freeze_predictor run_name
        version_2_with_negative null_score_diff_threshold doc_stride max_query_length n_best_size
        max_answer_length threads predictions_.json nbest_predictions_.json null_odds_.json
        eval_results_<task>.txt _nopruned_times""",
    "Options they share": SHARED,
}


@pytest.mark.parametrize("repository", NAMED)
def test_every_script_option_and_file_is_named(repository: str) -> None:
    part = text_of(PAGE).split(f"\n## {repository}\n")[1].split("\n## ")[0]
    missing = [name for name in NAMED[repository].split() if name not in part]
    assert not missing


def test_options_of_ours_that_it_names_exist() -> None:
    known = {
        name
        for command in COMMANDS.values()
        for option in command.params
        for name in (*option.opts, *option.secondary_opts)
    }
    ours = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![\w_])", prose(PAGE)))
    theirs = {f"--{name}" for names in NAMED.values() for name in names.split()}
    assert len(ours - theirs) > 30
    assert ours - theirs - {"--nproc-per-node"} <= known


def test_help_and_readme_lead_to_it() -> None:
    assert PAGE in COMMANDS["train"].epilog
    assert PAGE in text_of("README.md")
