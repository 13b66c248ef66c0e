#!/usr/bin/env python3
"""Introduces one defect into a copy of the code.

    mutate.py NAME SOURCE_ROOT OUT_FOLDER

Copies the mutated file into OUT_FOLDER; for a script of the trajectory store, the whole folder of scripts.
Fails unless the text to replace occurs exactly once. Then the code has changed and the mutant must be updated.
"""
import os
import shutil
import sys

SCRIPTS = "datastore/redis/scripts"

# name: (file, text, replacement)
MUTANTS = {
    # A replaced trainer can still commit.
    "skip_fence": (
        f"{SCRIPTS}/steps.lua",
        "  if J.epoch_open == 1 and epoch == J.epoch then return nil end\n",
        "  if J.epoch_open == 1 then return nil end\n",
    ),
    # Trained rows are deleted before a checkpoint contains them.
    "forget_early": (
        f"{SCRIPTS}/commit_step.lua",
        "set('version', step)\nset('redo_next', step + 1)\n",
        "set('version', step)\nset('redo_next', step + 1)\nset_durable(step, 1)\n",
    ),
    # A repeated put is counted twice.
    "drop_dedupe": (
        f"{SCRIPTS}/put_samples.lua",
        "    elseif finished and finished:match('^%d+') == token then\n      count_state('duplicate_puts', 1)\n"
        "    elseif finished or not live then\n",
        "    elseif not live then\n",
    ),
    # A rollout that lost its lease can still overwrite a sample's bytes.
    "overwrite_blob": (
        f"{SCRIPTS}/put_samples.lua",
        "    elseif finished or not live then\n",
        "    elseif g and finished then\n"
        "      keep(blob)\n"
        "      if f.rows then\n"
        "        f.rows = ('\\n' .. f.rows):gsub('\\n' .. index .. ' [^\\n]+', function()\n"
        "          return '\\n' .. index .. ' ' .. argv[i + 1]\n"
        "        end):sub(2)\n"
        "        write(g, 'rows', f.rows)\n"
        "      else\n"
        "        write(g, 's' .. index, argv[i + 1])\n"
        "      end\n"
        "      write(g, 'bl', (further[2] or '') .. ' ' .. blob)\n"
        "    elseif not live then\n",
    ),
    # Engines receive weights before their step is committed.
    "publish_first": (
        "trainer/loop/trainer_loop.cc",
        "  FRESHET_ASSIGN_OR_RETURN(const CommitReceipt receipt,\n"
        "                           store_.CommitStep(epoch_, step, Ordinals(batch.groups), content_hash));\n  Committed(receipt);\n",
        "  FRESHET_RETURN_IF_ERROR(publisher_.Publish({next, epoch_, step, content_hash, digest_}));\n"
        "  publisher_.AwaitPublished();\n"
        "  FRESHET_ASSIGN_OR_RETURN(const CommitReceipt receipt,\n"
        "                           store_.CommitStep(epoch_, step, Ordinals(batch.groups), content_hash));\n  Committed(receipt);\n",
    ),
}


def main():
    name, root, out = sys.argv[1:]
    path, text, instead = MUTANTS[name]
    folder = os.path.dirname(path)
    shutil.rmtree(out, ignore_errors=True)
    if folder == SCRIPTS:
        shutil.copytree(os.path.join(root, SCRIPTS), out)
    else:
        os.makedirs(out)
    with open(os.path.join(root, path)) as file:
        source = file.read()
    if source.count(text) != 1:
        sys.exit(f"{path}: the text that mutant {name} replaces occurs {source.count(text)} times")
    with open(os.path.join(out, os.path.basename(path)), "w") as file:
        file.write(source.replace(text, instead))


if __name__ == "__main__":
    main()
