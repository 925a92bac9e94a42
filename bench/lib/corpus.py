"""Real disk images out of the folder that `make demo` and `make corpus` fill."""

# The demo's set, of which all have something in common with others.
FIRST = ("debian-12-base", "debian-12-web", "debian-13-base", "debian-13-web")


def find_image(folder, device_bytes):
    """Returns the first image of a folder whose stored bytes fit twice on a side's disk (ext4 keeps both copies)."""
    for image in sorted(folder.glob("*.raw")):
        if 2 * image.stat().st_blocks * 512 < device_bytes * 0.9:
            return image
    return None


def find_images(folder, bytes_max):
    """Returns the demo's images, and after them others by name, as many as fit by what they store."""
    found, room = [], bytes_max
    for image in sorted(folder.glob("*.raw"), key=lambda image: (image.stem not in FIRST, image.name)):
        stored = image.stat().st_blocks * 512
        if stored > room:
            break
        found.append(image)
        room -= stored
    return tuple(found)
