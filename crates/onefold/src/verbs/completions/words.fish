# Completes pools and files inside pools, beside what is above.
function __onefold_pool_words
    set -l words (commandline -opc)
    $words[1] complete-words (count $words) -- $words (commandline -ct) 2>/dev/null
end
complete -c onefold -n "__fish_seen_subcommand_from pool" -a "(__onefold_pool_words)"
