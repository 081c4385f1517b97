/** Types of what the page and the server say to each other, and of what the page's parts hand on. */

/** A client or server event of the Realtime API: JSON with a `type`. */
export interface RealtimeEvent {
  type: string;
  [field: string]: any;
}

/**
 * A row of `mstar.trace`: ms since the session was opened, worker, request, component, walk, batch, duration in ms,
 * iteration, new items, first item, node.
 */
export type TraceRow = [number, string, string, string, string, number, number, number, number, number, string];

/** A moment of a turn: ms since the session was opened. */
export interface Mark {
  ms: number;
  sample?: number;
}

/** `mstar.turn`: when the parts of a turn happened. */
export interface TurnMarks extends RealtimeEvent {
  item_id: string | null;
  response_id: string;
  marks: Record<string, Mark>;
}

/** How far the listener has come in an item. `total` is null while more may come. Milliseconds. */
export interface Playing {
  item: string;
  played: number;
  total: number | null;
}

/** Why a connection ended, or could not be made. */
export interface Closed {
  /** A sentence for the user. */
  text: string;
  /** Whether another try may help. */
  retry: boolean;
  /** Seconds that the server asks to wait. */
  after?: number;
  /** The server wants an API key. */
  unauthorised?: boolean;
}

/** What a connection tells its owner. After `closed` nothing more comes. */
export interface Listener {
  event(event: RealtimeEvent): void;
  playing(playing: Playing): void;
  closed(why: Closed): void;
}

/** What a connection is made with. */
export interface Dial {
  /** Origin of the server, e.g. "http://127.0.0.1:8000". */
  origin: string;
  /** Family to talk with; "" = the server's first. */
  model: string;
  /** API key or client secret; "" = none. */
  key: string;
  /** The user's sound; null = a conversation in writing, answered aloud. */
  microphone: MediaStream | null;
  /** Device id of the loudspeaker; "" = the system's. */
  speaker: string;
  listener: Listener;
}

/** A connection to the server, over WebSocket or WebRTC. */
export interface Transport {
  readonly name: "webrtc" | "websocket";
  /** Levels of what goes in and out; null where there is nothing to measure. */
  readonly input: AnalyserNode | null;
  readonly output: AnalyserNode | null;
  send(event: RealtimeEvent): void;
  /** Stop the answer that is being made or played; done when the server has been told what was heard of it. */
  interrupt(): Promise<void>;
  useMicrophone(microphone: MediaStream): Promise<void>;
  useSpeaker(device: string): Promise<void>;
  close(): void;
}

/** `GET /v1/graph/{family}`, as far as it is drawn. */
export interface WalkGraph {
  name: string;
  components: { name: string; engine: string }[];
  partitions: { name: string; walks: WalkOfGraph[] }[];
  streams: {
    name: string;
    partition: string;
    to: string;
    from: { partition: string; walk: string; node: string; maker: string }[];
  }[];
  live: { name: string; scope: "session" | "request"; to: { partition: string; node: string }[]; slices: string[] }[];
  tasks: { name: string; start: Record<string, string>; standing: boolean }[];
}

export interface WalkOfGraph {
  name: string;
  then: string;
  nodes: { name: string; component: string; loop: string }[];
  edges: { kind: string; name: string; from: string; from_loop: boolean; maker: string; to?: string; modality?: string }[];
}
