import { useEffect, useState } from "react";
import type { ChatEntry } from "./chats";
import { CopyButton } from "./components/copy-button";
import type { ServerChats } from "./server-chats";
import { Button } from "./ui/button";
import { Dialog } from "./ui/dialog";

interface Props {
  chat: ChatEntry;
  server: ServerChats;
  close: () => void;
}

/** Makes the link to a chat, shows it, and revokes it. */
export function ShareDialog({ chat, server, close }: Props) {
  const [link, setLink] = useState<string>();
  const [failed, setFailed] = useState(false);

  async function make(): Promise<void> {
    const made = await server.share(chat.id);
    setLink(made);
    setFailed(made === undefined);
  }

  async function revoke(): Promise<void> {
    const done = await server.unshare(chat.id);
    setFailed(!done);
    if (done) close();
  }

  useEffect(() => {
    if (chat.shared) void make();
    // Once per chat: a chat that is shared has its link already.
  }, []);

  return (
    <Dialog title={`Share \u201c${chat.title}\u201d`} open close={close}>
      <div className="space-y-4 px-6 pb-6 text-sm">
        <p className="text-soft">
          Anyone with the link who can reach this server can read this chat: its messages, tools and files, including new ones.
          Nobody can write in it. You can revoke the link at any time.
        </p>
        {link && (
          <div className="flex items-center gap-2">
            <input
              readOnly
              aria-label="Link"
              className="h-9 pointer-coarse:h-11 min-w-0 flex-1 rounded-lg border border-line bg-surface px-3 font-mono text-xs"
              value={link}
              onFocus={(event) => event.target.select()}
            />
            <CopyButton text={link} label="Copy link" />
          </div>
        )}
        {failed && (
          <p role="alert" className="text-bad">
            The server did not change the link. Please try again.
          </p>
        )}
        <div className="flex justify-end gap-2">
          {link ? (
            <Button onClick={() => void revoke()}>Revoke the link</Button>
          ) : (
            <Button kind="primary" onClick={() => void make()}>
              Create a link
            </Button>
          )}
        </div>
      </div>
    </Dialog>
  );
}
