"""Nginx with the files of a run, as what stands beside a server of images."""

import subprocess
from contextlib import contextmanager

from lib import system

from .network import SERVER, address, wait_until

PORT = 8080
PROGRAM = "nginx"
SETTINGS = """daemon off;
pid {folder}/nginx.pid;
error_log stderr;
worker_processes 2;
events {{ worker_connections 256; }}
http {{
  access_log off;
  sendfile on;
  client_body_temp_path {folder}/nginx.body;
  proxy_temp_path {folder}/nginx.proxy;
  fastcgi_temp_path {folder}/nginx.fastcgi;
  uwsgi_temp_path {folder}/nginx.uwsgi;
  scgi_temp_path {folder}/nginx.scgi;
  server {{ listen {host}:{port}; root {root}; }}
}}
user root;
"""


@contextmanager
def nginx(images, root, network=None):
    """Serves a folder; returns its address."""
    host = address(SERVER) if network else "127.0.0.1"
    settings = images.folder / "nginx.conf"
    settings.write_text(SETTINGS.format(folder=images.folder, host=host, port=PORT, root=root), encoding="utf-8")
    at = network.at(SERVER) if network else ()
    null = subprocess.DEVNULL
    with open(images.folder / "nginx.log", "w", encoding="utf-8") as said:
        words = [*at, PROGRAM, "-c", str(settings)]
        process = subprocess.Popen(words, stdin=null, stdout=said, stderr=said)
    try:
        curl = (*at, "curl", "--silent", "--output", "/dev/null", f"http://{host}:{PORT}/")
        wait_until(lambda: subprocess.run(curl, check=False).returncode == 0, "nginx does not begin")
        yield f"http://{host}:{PORT}"
    finally:
        # Its workers end with it, unless it is killed.
        process.terminate()
        try:
            process.wait(system.KILL_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            system.end(process)
