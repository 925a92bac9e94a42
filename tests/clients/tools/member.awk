# Prints a member of a JSON document, by the names and places on the way to it: awk -v path=tiers.0.files -f member.awk
#
# A number, text or other scalar is printed as it stands there, an empty list or object as `[]` or `{}`, and any other one
# as how many members it has, within its brackets. Exit code 1 where there is no such member. An interpreter of JSON takes
# ten times as long to start, and cases ask for hundreds of members.

# Returns the path to the value that comes next.
function here(    at) {
    at = kind[depth] == "[" ? count[depth] : key[depth]
    return depth == 1 ? at : prefix[depth] "." at
}

function found(value) {
    print value
    is_found = 1
    exit
}

function take(token,    at) {
    if (token == "{" || token == "[") {
        at = depth == 0 ? "" : here()
        depth++
        kind[depth] = token
        prefix[depth] = at
        count[depth] = 0
        is_empty[depth] = 1
        is_key = token == "{"
    } else if (token == "}" || token == "]") {
        if (depth > 1 && prefix[depth] == path)
            found(kind[depth] (is_empty[depth] ? "" : count[depth] + 1) token)
        depth--
        is_empty[depth] = 0
    } else if (token == ",") {
        count[depth]++
        is_key = kind[depth] == "{"
    } else if (token == ":") {
        is_key = 0
    } else {
        is_empty[depth] = 0
        if (is_key)
            key[depth] = substr(token, 2, length(token) - 2)
        else if (here() == path)
            found(token)
    }
}

{
    line = $0
    while (match(line, /"([^"\\]|\\.)*"|[^]["{}:, \t]+|[]{}:,[]/)) {
        token = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        take(token)
    }
}

END { exit !is_found }
