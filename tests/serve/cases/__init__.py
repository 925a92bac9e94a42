"""The cases, each a function of a `Lab`, a folder and what it draws from. Its first line of comment is its claim."""

from cases import archives, boot, filters, kills, links, ways, weather

# In the order in which they run. The boot has an image of its own, which the caller names.
CASES = {
    function.__name__.replace("_", "-"): function
    for function in (
        links.loss,
        links.bursts,
        links.rates,
        links.sixteen,
        links.slow_client,
        links.together,
        filters.filtered,
        filters.two_servers,
        filters.querier,
        filters.no_querier,
        weather.weather,
        ways.no_requests,
        ways.no_tcp,
        ways.small_mtu,
        ways.suspended_server,
        ways.cut_client,
        kills.killed_server,
        kills.killed_clients,
        kills.continued,
        archives.collected,
        archives.removed,
        archives.full_disk,
        archives.bucket,
        kills.suspended,
        kills.no_network,
        boot.boot,
    )
}
