//! The drawing of a treemap, once for each width of a page.

use onefold_block::size::human;

use super::label::Font;
use super::squarify::{Frame, squarify};
use super::tree::Node;
use crate::files::ShareBytes;
use crate::page::figures::percent;
use crate::page::svg::{Anchor, Drawing};

/// Number of colours for the part that other images share: the first is for up to a fifth, and so on.
pub(super) const TONES: u64 = 5;
/// Minimum side of a rectangle. The area of a narrower one would be rounded to another value, and it would be
/// invisible.
const SIDE_MIN: f64 = 0.05;
/// Distance between the edge of a rectangle and its label.
const MARGIN: f64 = 6.0;

const GROUP: Font = Font { class: "group", size: 13.0, line: 18.0, is_bold: true };
const PART: Font = Font { class: "part", size: 12.5, line: 15.0, is_bold: true };
const NUMBERS: Font = Font { class: "numbers", size: 11.5, line: 14.0, is_bold: false };
const FOLDER: Font = Font { class: "folder", size: 11.5, line: 14.0, is_bold: false };

/// A treemap in one of its widths.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) id: &'static str,
    pub(super) class: &'static str,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A node and its place. The places of its parts fill its own place.
struct PlacedNode<'a> {
    node: &'a Node,
    frame: Frame,
    parts: Vec<PlacedNode<'a>>,
}

fn place(nodes: &[Node], frame: Frame) -> Vec<PlacedNode<'_>> {
    let sizes: Vec<u64> = nodes.iter().map(|node| node.share.bytes).collect();
    let frames = squarify(frame, &sizes);
    let visible = |frame: &Frame| frame.width >= SIDE_MIN && frame.height >= SIDE_MIN;
    nodes
        .iter()
        .zip(frames)
        .filter(|(_, frame)| visible(frame))
        .map(|(node, frame)| PlacedNode { node, frame, parts: place(&node.parts, frame) })
        .collect()
}

/// Returns the class of the colour of a share.
pub(super) fn tone(share: ShareBytes) -> u64 {
    let fifths = u128::from(share.shared_with_others_bytes) * u128::from(TONES) / u128::from(share.bytes.max(1));
    u64::try_from(fifths).unwrap_or(TONES).min(TONES - 1)
}

/// Returns bytes, and the part of them that other images share.
fn numbers(share: ShareBytes) -> String {
    format!("{} · {:.0} %", human(share.bytes), percent(share.shared_with_others_bytes, share.bytes))
}

/// Draws groups, their parts and the parts of these. `title` is for screen readers.
pub(super) fn treemap(groups: &[Node], shape: Shape, title: &str) -> String {
    let mut drawing = Drawing::sized(shape.id, shape.class, title, shape.width);
    let placed = place(groups, Frame::of(shape.width, shape.height));
    for group in &placed {
        draw_tiles(&mut drawing, group, "");
    }
    let parts = || placed.iter().flat_map(|group| &group.parts);
    parts().for_each(|part| drawing.outline(part.frame.sides(), "parts", part.node.share.bytes));
    placed.iter().for_each(|group| drawing.outline(group.frame.sides(), "groups", group.node.share.bytes));
    for group in &placed {
        let tab = draw_tab(&mut drawing, group);
        for part in &group.parts {
            label_part(&mut drawing, part, tab);
        }
    }
    drawing.finish(shape.height)
}

/// Fills the rectangles that have no parts.
fn draw_tiles(drawing: &mut Drawing, placed: &PlacedNode<'_>, path: &str) {
    let node = placed.node;
    let path = if path.is_empty() { node.name.clone() } else { format!("{path} › {}", node.name) };
    if placed.parts.is_empty() {
        let share = node.share;
        let part = percent(share.shared_with_others_bytes, share.bytes);
        let tip = format!("{path}: {}, other images have {part:.1} % of it", human(share.bytes));
        drawing.tile(placed.frame.sides(), &format!("tone{}", tone(share)), share.bytes, &tip);
    }
    placed.parts.iter().for_each(|part| draw_tiles(drawing, part, &path));
}

/// Writes the name of a group on a tab in its corner, if it fits. Returns the place of the tab.
fn draw_tab(drawing: &mut Drawing, group: &PlacedNode<'_>) -> Option<Frame> {
    let (node, frame) = (group.node, group.frame);
    let tab_height = GROUP.line + 2.0;
    if frame.height < 2.0 * tab_height {
        return None;
    }
    let room = frame.width - 2.0 * MARGIN - 2.0;
    let long = GROUP.whole(&format!("{}  {}", node.name, numbers(node.share)), room);
    let text = long.or_else(|| GROUP.whole(&node.name, room))?;
    let tab = Frame { width: GROUP.width(&text) + 2.0 * MARGIN, height: tab_height, ..frame };
    drawing.plate(tab.sides());
    drawing.text(tab.x + MARGIN, tab.y + 14.5, Anchor::Start, GROUP.class, &text);
    Some(tab)
}

/// Writes the name of a part into its first rectangle, and the names of its folders, as far as they fit.
fn label_part(drawing: &mut Drawing, part: &PlacedNode<'_>, tab: Option<Frame>) {
    let share = part.node.share;
    let mut lines = Lines::new(part.parts.first().unwrap_or(part), tab);
    // A folder's name is useless without the name of its package.
    if !lines.write(drawing, PART, &part.node.name) {
        return;
    }
    lines.write_whole(drawing, NUMBERS, &numbers(share));
    let Some((first, others)) = part.parts.split_first() else { return };
    lines.y += 4.0;
    lines.write_folder(drawing, first.node, part.node);
    for folder in others {
        Lines::new(folder, tab).write_folder(drawing, folder.node, part.node);
    }
}

/// Lines of text in a rectangle, from the top.
struct Lines {
    frame: Frame,
    y: f64,
    tone: u64,
}

impl Lines {
    /// Starts below the tab, if the tab overlaps.
    fn new(placed: &PlacedNode<'_>, tab: Option<Frame>) -> Lines {
        let frame = placed.frame;
        let below = tab.filter(|tab| frame.overlaps(tab)).map_or(frame.y, |tab| tab.bottom());
        Lines { frame, y: below.max(frame.y) + 4.0, tone: tone(placed.node.share) }
    }

    fn room(&self) -> f64 {
        self.frame.width - 2.0 * MARGIN
    }

    /// Writes the text or its beginning. Returns whether there was room.
    fn write(&mut self, drawing: &mut Drawing, font: Font, text: &str) -> bool {
        let text = font.beginning(text, self.room());
        self.put(drawing, font, text)
    }

    /// Writes the text if it fits completely.
    fn write_whole(&mut self, drawing: &mut Drawing, font: Font, text: &str) -> bool {
        let text = font.whole(text, self.room());
        self.put(drawing, font, text)
    }

    fn put(&mut self, drawing: &mut Drawing, font: Font, text: Option<String>) -> bool {
        let Some(text) = text.filter(|_| self.y + font.line + 1.0 <= self.frame.bottom()) else { return false };
        let class = format!("{} ink{}", font.class, self.tone);
        drawing.text(self.frame.x + MARGIN, self.y + font.size - 1.0, Anchor::Start, &class, &text);
        self.y += font.line;
        true
    }

    /// Writes the name of a folder, and its numbers unless they are those of the whole part.
    fn write_folder(&mut self, drawing: &mut Drawing, folder: &Node, part: &Node) {
        if self.write(drawing, FOLDER, &folder.name) && folder.share != part.share {
            self.write_whole(drawing, NUMBERS, &numbers(folder.share));
        }
    }
}
