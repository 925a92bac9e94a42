//! Fields that several structures share: names of objects and images, and times.

use onefold_block::Timestamp;

use super::FormatError;
use super::bytes::{Decoder, Encoder};
use crate::name::IMAGE_NAME_BYTES_MAX;
use crate::{ImageName, ImageVersion, ObjectId, WriterId};

/// Length of an [`ObjectId`] in bytes.
pub(super) const ID_BYTES: usize = 24;

pub(super) fn encode_id(encoder: &mut Encoder, id: ObjectId) {
    encoder.bytes(&id.writer.0).bytes(&id.random);
}

pub(super) fn decode_id(decoder: &mut Decoder<'_>) -> Result<ObjectId, FormatError> {
    Ok(ObjectId { writer: WriterId(decoder.array()?), random: decoder.array()? })
}

pub(super) fn encode_image(encoder: &mut Encoder, image: &ImageVersion) {
    encoder.u32(image.version).text(image.name.as_str());
}

pub(super) fn decode_image(decoder: &mut Decoder<'_>) -> Result<ImageVersion, FormatError> {
    let version = decoder.u32()?;
    if version == 0 {
        return Err(decoder.wrong("versions are counted from 1"));
    }
    let name = ImageName::new(decoder.text(IMAGE_NAME_BYTES_MAX)?);
    Ok(ImageVersion { name: name.map_err(|_| decoder.wrong("a name that images cannot have"))?, version })
}

pub(super) fn encode_time(encoder: &mut Encoder, time: Timestamp) {
    encoder.bytes(&time.seconds.to_le_bytes()).u32(time.nanoseconds);
}

pub(super) fn decode_time(decoder: &mut Decoder<'_>) -> Result<Timestamp, FormatError> {
    let time = Timestamp { seconds: i64::from_le_bytes(decoder.array()?), nanoseconds: decoder.u32()? };
    if time.nanoseconds < 1_000_000_000 { Ok(time) } else { Err(decoder.wrong("a time that no clock shows")) }
}
