# Completes pools and files inside pools; everything else is left to _onefold_arguments.
_onefold() {
    local word pools=()
    if [[ ${COMP_WORDS[1]} == pool && ${COMP_CWORD} -ge 3 ]]; then
        # Words are as the user typed them, with backslashes.
        while IFS= read -r word; do
            pools+=("${word}")
        done < <("$1" complete-words "${COMP_CWORD}" -- "${COMP_WORDS[@]//\\/}" 2>/dev/null)
    fi
    if [[ ${#pools[@]} -eq 0 ]]; then
        _onefold_arguments "$@"
        return
    fi
    COMPREPLY=("${pools[@]}")
    # Quotes names, and puts a slash behind directories.
    compopt -o filenames 2>/dev/null
    if [[ ${#pools[@]} -eq 1 && ${pools[0]} == */ ]]; then
        compopt -o nospace 2>/dev/null
    fi
    # A pool may also be a file that only the user knows.
    while IFS= read -r word; do
        COMPREPLY+=("${word}")
    done < <([[ ${COMP_CWORD} -eq 3 ]] && compgen -f -- "$2")
}
