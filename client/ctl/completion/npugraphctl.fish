# SPDX-License-Identifier: Apache-2.0
# Printed by: npugraphctl completion fish

# Names of loaded models; quiet when no daemon answers.
function __npugraphctl_models
    npugraphctl --timeout 1s models 2>/dev/null | awk 'NR > 1 && $1 != "models." { print $1 }'
end

complete -c npugraphctl -f
complete -c npugraphctl -n __fish_use_subcommand -a status -d 'What the daemon is doing'
complete -c npugraphctl -n __fish_use_subcommand -a devices -d 'Devices, their memory and queues'
complete -c npugraphctl -n __fish_use_subcommand -a graphs -d 'Registered graphs; one as text, Graphviz, plan or map'
complete -c npugraphctl -n __fish_use_subcommand -a patterns -d 'Fusion patterns: built-in ones and those that were registered'
complete -c npugraphctl -n __fish_use_subcommand -a options -d 'Options that graphs are registered and captured with'
complete -c npugraphctl -n __fish_use_subcommand -a models -d 'Loaded models'
complete -c npugraphctl -n __fish_use_subcommand -a sessions -d 'Connected clients and what they own'
complete -c npugraphctl -n __fish_use_subcommand -a groups -d 'Devices whose graphs run collectives together'
complete -c npugraphctl -n __fish_use_subcommand -a shares -d 'Identities: weight, what waits, device time used'
complete -c npugraphctl -n __fish_use_subcommand -a quota -d 'What identities hold, may hold, and were refused'
complete -c npugraphctl -n __fish_use_subcommand -a sequences -d 'Open sequences'
complete -c npugraphctl -n __fish_use_subcommand -a memory -d 'Device memory by holder'
complete -c npugraphctl -n __fish_use_subcommand -a top -d 'Live: devices, clients by device time, tokens/s, latencies'
complete -c npugraphctl -n __fish_use_subcommand -a stats -d 'All statistics, as JSON or Prometheus text'
complete -c npugraphctl -n __fish_use_subcommand -a quantize -d 'Write a checkpoint with quantised weights'
complete -c npugraphctl -n __fish_use_subcommand -a load -d 'Load a Hugging Face checkpoint or a GGUF file as a model'
complete -c npugraphctl -n __fish_use_subcommand -a share -d 'Say who may use a model'
complete -c npugraphctl -n __fish_use_subcommand -a unload -d 'Unload a model'
complete -c npugraphctl -n __fish_use_subcommand -a generate -d 'Generate text, streamed as it is made'
complete -c npugraphctl -n __fish_use_subcommand -a chat -d 'Converse with a model, by its checkpoint\'s chat template'
complete -c npugraphctl -n __fish_use_subcommand -a perplexity -d 'How well a model foresees a text'
complete -c npugraphctl -n __fish_use_subcommand -a embed -d 'Embeddings of texts: hidden states of a model, for search and comparison'
complete -c npugraphctl -n __fish_use_subcommand -a capture -d 'Capture a graph file and show its cost'
complete -c npugraphctl -n __fish_use_subcommand -a explain -d 'Why replays missed, were padded, evicted, ran eagerly or were refused'
complete -c npugraphctl -n __fish_use_subcommand -a events -d 'What the daemon noted about captures and replays'
complete -c npugraphctl -n __fish_use_subcommand -a logs -d 'The daemon\'s log'
complete -c npugraphctl -n __fish_use_subcommand -a doctor -d 'Find the step at which a graph\'s results go wrong; or check a device'
complete -c npugraphctl -n __fish_use_subcommand -a trace -d 'One replay of a graph, or all that the devices do, as a Chrome trace'
complete -c npugraphctl -n __fish_use_subcommand -a buckets -d 'Sizes seen of a symbol, and the buckets that would pad them least'
complete -c npugraphctl -n __fish_use_subcommand -a replay -d 'Register, capture and replay a graph file'
complete -c npugraphctl -n __fish_use_subcommand -a tokenize -d 'Text to token ids, or back; needs no daemon'
complete -c npugraphctl -n __fish_use_subcommand -a cache -d 'Compiled plans that are kept on disk'
complete -c npugraphctl -n __fish_use_subcommand -a drain -d 'Finish what runs and stop the daemon'
complete -c npugraphctl -n __fish_use_subcommand -a reload -d 'Read the daemon\'s configuration again'
complete -c npugraphctl -n __fish_use_subcommand -a config -d 'Options of the daemon: values, where they were set, what changes them'
complete -c npugraphctl -n __fish_use_subcommand -a tokens -d 'Make and revoke bearer tokens; needs no daemon'
complete -c npugraphctl -n __fish_use_subcommand -a contexts -d 'Daemons that --context names'
complete -c npugraphctl -n __fish_use_subcommand -a completion -d 'Print a shell\'s completion'
complete -c npugraphctl -n __fish_use_subcommand -a help -d 'Explain a command'
complete -c npugraphctl -l address -x
complete -c npugraphctl -l context -x
complete -c npugraphctl -l json
complete -c npugraphctl -l timeout -x
complete -c npugraphctl -l tls-ca -r -F
complete -c npugraphctl -l tls-cert -r -F
complete -c npugraphctl -l tls-key -r -F
complete -c npugraphctl -l tls-server-name -x
complete -c npugraphctl -l token-file -r -F
complete -c npugraphctl -l color -x -a 'auto always never'
complete -c npugraphctl -l quiet
complete -c npugraphctl -l watch -x
complete -c npugraphctl -l help
complete -c npugraphctl -l version
complete -c npugraphctl -n '__fish_seen_subcommand_from status' -l wait
complete -c npugraphctl -n '__fish_seen_subcommand_from status' -l models
complete -c npugraphctl -n '__fish_seen_subcommand_from devices' -l capabilities
complete -c npugraphctl -n '__fish_seen_subcommand_from graphs' -a list
complete -c npugraphctl -n '__fish_seen_subcommand_from graphs' -a show
complete -c npugraphctl -n '__fish_seen_subcommand_from graphs' -a dot
complete -c npugraphctl -n '__fish_seen_subcommand_from graphs' -a plan
complete -c npugraphctl -n '__fish_seen_subcommand_from graphs' -a map
complete -c npugraphctl -n '__fish_seen_subcommand_from graphs' -l key -x
complete -c npugraphctl -n '__fish_seen_subcommand_from graphs' -l svg -r -F
complete -c npugraphctl -n '__fish_seen_subcommand_from patterns' -a list
complete -c npugraphctl -n '__fish_seen_subcommand_from patterns' -a show
complete -c npugraphctl -n '__fish_seen_subcommand_from patterns' -a add
complete -c npugraphctl -n '__fish_seen_subcommand_from patterns' -F
complete -c npugraphctl -n '__fish_seen_subcommand_from patterns' -a remove
complete -c npugraphctl -n '__fish_seen_subcommand_from patterns' -l for-all
complete -c npugraphctl -n '__fish_seen_subcommand_from memory' -l totals
complete -c npugraphctl -n '__fish_seen_subcommand_from top' -l interval -x
complete -c npugraphctl -n '__fish_seen_subcommand_from top' -l count -x
complete -c npugraphctl -n '__fish_seen_subcommand_from stats' -l prometheus
complete -c npugraphctl -n '__fish_seen_subcommand_from quantize' -a '(__fish_complete_directories)'
complete -c npugraphctl -n '__fish_seen_subcommand_from quantize' -l to -x -a 'int8 int4 w8a8 fp8'
complete -c npugraphctl -n '__fish_seen_subcommand_from quantize' -l group -x
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l name -x
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l max-context -x
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l max-batch -x
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l chunk -x
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l block-size -x
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l kv-bytes -x
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l kv-dtype -x -a 'auto int8 fp8 f32 f16 bf16'
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l kv-policy -x -a 'refuse preempt'
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l matmul-precision -x -a 'highest high medium'
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l no-prefix-sharing
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l devices -x
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l share-with -x
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l public
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l private
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l share-prefixes
complete -c npugraphctl -n '__fish_seen_subcommand_from load' -l embedding
complete -c npugraphctl -n '__fish_seen_subcommand_from share' -a '(__npugraphctl_models)'
complete -c npugraphctl -n '__fish_seen_subcommand_from share' -l with -x
complete -c npugraphctl -n '__fish_seen_subcommand_from share' -l public
complete -c npugraphctl -n '__fish_seen_subcommand_from share' -l private
complete -c npugraphctl -n '__fish_seen_subcommand_from unload' -a '(__npugraphctl_models)'
complete -c npugraphctl -n '__fish_seen_subcommand_from unload' -l force
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -a '(__npugraphctl_models)'
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l tokenizer -r -F
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l prompt -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l ids -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l tokens -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l temperature -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l top-k -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l top-p -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l min-p -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l typical-p -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l repetition-penalty -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l presence-penalty -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l frequency-penalty -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l min-tokens -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l logit-bias -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l bad-word -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l seed -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l n -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l best-of -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l stop -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l logprobs -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l priority -x -a 'high normal low'
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l restore-timeout -x
complete -c npugraphctl -n '__fish_seen_subcommand_from generate' -l timing
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -a '(__npugraphctl_models)'
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l tokenizer -x -a '(__fish_complete_directories)'
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l system -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l template -r -F
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l plain
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l tokens -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l stop -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l temperature -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l top-k -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l top-p -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l min-p -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l typical-p -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l repetition-penalty -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l presence-penalty -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l frequency-penalty -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l min-tokens -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l logit-bias -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l bad-word -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l seed -x
complete -c npugraphctl -n '__fish_seen_subcommand_from chat' -l restore-timeout -x
complete -c npugraphctl -n '__fish_seen_subcommand_from perplexity' -a '(__npugraphctl_models)'
complete -c npugraphctl -n '__fish_seen_subcommand_from perplexity' -l text -r -F
complete -c npugraphctl -n '__fish_seen_subcommand_from perplexity' -l ids -x
complete -c npugraphctl -n '__fish_seen_subcommand_from perplexity' -l tokenizer -r -F
complete -c npugraphctl -n '__fish_seen_subcommand_from perplexity' -l tokens -x
complete -c npugraphctl -n '__fish_seen_subcommand_from perplexity' -l window -x
complete -c npugraphctl -n '__fish_seen_subcommand_from embed' -a '(__npugraphctl_models)'
complete -c npugraphctl -n '__fish_seen_subcommand_from embed' -l text -x
complete -c npugraphctl -n '__fish_seen_subcommand_from embed' -l file -r -F
complete -c npugraphctl -n '__fish_seen_subcommand_from embed' -l json-lines
complete -c npugraphctl -n '__fish_seen_subcommand_from embed' -l tokenizer -r -F
complete -c npugraphctl -n '__fish_seen_subcommand_from embed' -l dimensions -x
complete -c npugraphctl -n '__fish_seen_subcommand_from embed' -l unit
complete -c npugraphctl -n '__fish_seen_subcommand_from capture' -F
complete -c npugraphctl -n '__fish_seen_subcommand_from capture' -l symbol -x
complete -c npugraphctl -n '__fish_seen_subcommand_from capture' -l option -x
complete -c npugraphctl -n '__fish_seen_subcommand_from capture' -l dry-run
complete -c npugraphctl -n '__fish_seen_subcommand_from explain' -l limit -x
complete -c npugraphctl -n '__fish_seen_subcommand_from events' -l follow
complete -c npugraphctl -n '__fish_seen_subcommand_from events' -l limit -x
complete -c npugraphctl -n '__fish_seen_subcommand_from logs' -l follow
complete -c npugraphctl -n '__fish_seen_subcommand_from logs' -l level -x -a 'error warning notice info debug'
complete -c npugraphctl -n '__fish_seen_subcommand_from logs' -l since -x
complete -c npugraphctl -n '__fish_seen_subcommand_from doctor' -l symbol -x
complete -c npugraphctl -n '__fish_seen_subcommand_from doctor' -l input -x
complete -c npugraphctl -n '__fish_seen_subcommand_from doctor' -l seed -x
complete -c npugraphctl -n '__fish_seen_subcommand_from doctor' -a device
complete -c npugraphctl -n '__fish_seen_subcommand_from doctor' -l report -r -F
complete -c npugraphctl -n '__fish_seen_subcommand_from doctor' -l probe -r -F
complete -c npugraphctl -n '__fish_seen_subcommand_from doctor' -l config -r -F
complete -c npugraphctl -n '__fish_seen_subcommand_from doctor' -l ascend-libs -x -a '(__fish_complete_directories)'
complete -c npugraphctl -n '__fish_seen_subcommand_from doctor' -l ascend-lib-names -x
complete -c npugraphctl -n '__fish_seen_subcommand_from trace' -l symbol -x
complete -c npugraphctl -n '__fish_seen_subcommand_from trace' -l input -x
complete -c npugraphctl -n '__fish_seen_subcommand_from trace' -l seed -x
complete -c npugraphctl -n '__fish_seen_subcommand_from trace' -l output -r -F
complete -c npugraphctl -n '__fish_seen_subcommand_from trace' -a start
complete -c npugraphctl -n '__fish_seen_subcommand_from trace' -l events -x
complete -c npugraphctl -n '__fish_seen_subcommand_from trace' -a stop
complete -c npugraphctl -n '__fish_seen_subcommand_from trace' -l form -x -a 'chrome arrivals'
complete -c npugraphctl -n '__fish_seen_subcommand_from buckets' -l symbol -x
complete -c npugraphctl -n '__fish_seen_subcommand_from buckets' -l captures -x
complete -c npugraphctl -n '__fish_seen_subcommand_from buckets' -l set -x
complete -c npugraphctl -n '__fish_seen_subcommand_from buckets' -l apply
complete -c npugraphctl -n '__fish_seen_subcommand_from replay' -F
complete -c npugraphctl -n '__fish_seen_subcommand_from replay' -l symbol -x
complete -c npugraphctl -n '__fish_seen_subcommand_from replay' -l input -x
complete -c npugraphctl -n '__fish_seen_subcommand_from replay' -l host -x
complete -c npugraphctl -n '__fish_seen_subcommand_from replay' -l option -x
complete -c npugraphctl -n '__fish_seen_subcommand_from replay' -l repeat -x
complete -c npugraphctl -n '__fish_seen_subcommand_from replay' -l eager
complete -c npugraphctl -n '__fish_seen_subcommand_from replay' -l timing
complete -c npugraphctl -n '__fish_seen_subcommand_from tokenize' -F
complete -c npugraphctl -n '__fish_seen_subcommand_from tokenize' -l decode -x
complete -c npugraphctl -n '__fish_seen_subcommand_from cache' -a list
complete -c npugraphctl -n '__fish_seen_subcommand_from cache' -a show
complete -c npugraphctl -n '__fish_seen_subcommand_from cache' -a verify
complete -c npugraphctl -n '__fish_seen_subcommand_from cache' -a export
complete -c npugraphctl -n '__fish_seen_subcommand_from cache' -F
complete -c npugraphctl -n '__fish_seen_subcommand_from cache' -a import
complete -c npugraphctl -n '__fish_seen_subcommand_from cache' -a clear
complete -c npugraphctl -n '__fish_seen_subcommand_from drain' -l grace -x
complete -c npugraphctl -n '__fish_seen_subcommand_from drain' -l stay
complete -c npugraphctl -n '__fish_seen_subcommand_from config' -a show
complete -c npugraphctl -n '__fish_seen_subcommand_from config' -a diff
complete -c npugraphctl -n '__fish_seen_subcommand_from config' -a set
complete -c npugraphctl -n '__fish_seen_subcommand_from config' -a unset
complete -c npugraphctl -n '__fish_seen_subcommand_from tokens' -a new
complete -c npugraphctl -n '__fish_seen_subcommand_from tokens' -l expires -x
complete -c npugraphctl -n '__fish_seen_subcommand_from tokens' -l role -x -a 'none viewer user operator admin'
complete -c npugraphctl -n '__fish_seen_subcommand_from tokens' -l file -r -F
complete -c npugraphctl -n '__fish_seen_subcommand_from tokens' -a list
complete -c npugraphctl -n '__fish_seen_subcommand_from tokens' -a revoke
complete -c npugraphctl -n '__fish_seen_subcommand_from tokens' -l keep-newest
complete -c npugraphctl -n '__fish_seen_subcommand_from tokens' -a hash
complete -c npugraphctl -n '__fish_seen_subcommand_from completion' -x -a 'bash zsh fish'
