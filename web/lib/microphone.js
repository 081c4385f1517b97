/** Microphones and loudspeakers: which there are, opening one, and saying why it can not be opened. */

/** A reason that the user can act on. */
export class Unavailable extends Error {}

/**
 * @param {string} device id of the microphone; "" = the system's
 * @returns {Promise<MediaStream>}
 */
export async function openMicrophone(device) {
  if (!navigator.mediaDevices?.getUserMedia) {
    throw new Unavailable(
      "This page may not use a microphone: the browser allows it on https or on localhost only. You can still type.",
    );
  }
  /** @type {MediaTrackConstraints} */
  const audio = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 };
  if (device) audio.deviceId = { exact: device };
  try {
    return await navigator.mediaDevices.getUserMedia({ audio });
  } catch (why) {
    throw new Unavailable(reason(why));
  }
}

/** @param {unknown} why @returns {string} */
function reason(why) {
  switch (why instanceof DOMException ? why.name : "") {
    case "NotAllowedError":
      return "The microphone is blocked. Allow it in the address bar of the browser, then start again. You can still type.";
    case "NotFoundError":
      return "No microphone was found. Plug one in and start again. You can still type.";
    case "OverconstrainedError":
      return "The chosen microphone is gone. Choose another one in the settings.";
    case "NotReadableError":
      return "The microphone is in use by another program, or the system does not give it out.";
    default:
      return `The microphone can not be opened: ${why instanceof Error ? why.message : String(why)}`;
  }
}

/**
 * Devices by kind. Names are known once a microphone has been allowed.
 * @returns {Promise<{microphones: MediaDeviceInfo[], speakers: MediaDeviceInfo[]}>}
 */
export async function devices() {
  const all = (await navigator.mediaDevices?.enumerateDevices?.()) ?? [];
  const known = all.filter((device) => device.deviceId && device.deviceId !== "default");
  return {
    microphones: known.filter((device) => device.kind === "audioinput"),
    speakers: known.filter((device) => device.kind === "audiooutput"),
  };
}

/** Whether the browser lets the user choose a loudspeaker. */
export const speakerChoice = "setSinkId" in HTMLMediaElement.prototype;
