# Completes pools and files inside pools; everything else is left to _onefold_arguments.
_onefold() {
    local -a pools
    if [[ ${words[2]} == pool ]] && (( CURRENT > 3 )); then
        pools=(${(f)"$(${words[1]} complete-words $((CURRENT - 1)) -- "${(@Q)words}" 2>/dev/null)"})
    fi
    if (( ${#pools} == 0 )); then
        _onefold_arguments "$@"
        return
    fi
    compadd -f -- ${(M)pools:#*[^/]}
    compadd -f -S '' -- ${(M)pools:#*/}
    # A pool may also be a file that only the user knows.
    (( CURRENT == 4 )) && _files
    return 0
}
