package defence

// What browsers reach (internal/control).
const (
	ControlHost      Name = "control.host"       // row 20: a Host header that is none of ours is refused
	ControlOrigin    Name = "control.origin"     // rows 20, 22, 28: an Origin that is not the page's own is refused
	ControlFetchSite Name = "control.fetch-site" // rows 20, 22, 28: fetch metadata of another page are refused
	ControlTokens    Name = "control.tokens"     // row 24: a page can't use an API token
	ControlEnter     Name = "control.enter"      // row 24: only the console's page signs in to a desktop
	ControlWorkers   Name = "control.workers"    // row 22: no script is served as a service worker
	ControlPaths     Name = "control.paths"      // row 21: the dev server is asked for the desktop's own files only
	ControlHeaders   Name = "control.headers"    // rows 22, 44: of a box's answer only listed headers are passed on
	ControlPages     Name = "control.pages"      // row 27: no HTML of a box but the one page has the desktop's origin
	ControlTypes     Name = "control.types"      // row 27: what a box calls a page's type is not passed on
	ControlRedirects Name = "control.redirects"  // row 24: a box redirects nobody
	ControlRequests  Name = "control.requests"   // row 22: of a browser's request only listed headers reach a box
	ControlComputer  Name = "control.computer"   // row 23: a desktop's session is for its own computer
	ControlCookies   Name = "control.cookies"    // row 22: cookies that a desktop's page sets for the console keep nobody out of it
	ControlTries     Name = "control.tries"      // row 29: sign-in is tried a few times a minute

	ControlPolicy       Name = "control.policy"          // rows 22, 24, 25: a desktop's page loads, runs and sends to nothing but its own origin
	ControlSandbox      Name = "control.sandbox"         // row 22: a desktop's page opens no windows, whoever frames it
	ControlFrames       Name = "control.frames"          // row 22: the console's frame shows desktops only
	ControlAncestors    Name = "control.frame-ancestors" // row 28: nobody frames the console
	ControlFrameOptions Name = "control.frame-options"   // row 28: the same, in the older words
	StageWatch          Name = "stage.watch"             // row 48: the console sees that the desktop's page hangs, and offers another (a script: the suite serves another text)
	OutboxChecked       Name = "outbox.checked"          // row 50: the desktop queues nothing that can't be sent (its source: the suite edits it)
	OutboxKept          Name = "outbox.kept"             // row 50: what was kept and can't be sent stands aside (as above)
	OutboxTries         Name = "outbox.tries"            // row 50: what gets no answer stands aside after some tries (as above)
	OutboxRefused       Name = "outbox.refused"          // row 50: what the host refuses is not sent again (as above)
	OutboxRoom          Name = "outbox.room"             // row 50: what can't be sent takes no room from the rest (as above)
	OutboxRead          Name = "outbox.read"             // row 50: what was kept and is no action is left out (as above)
	ControlAgents       Name = "control.agent-cluster"   // row 48: a desktop's page has a process of its own, not the console's
	ControlBodies       Name = "control.bodies"          // row 24: what a form can send is no body of the API
	ControlSameSite     Name = "control.same-site"       // row 24: another site's page sends none of our cookies
)

// Accounts and sessions (internal/identity).
const (
	IdentityInvited Name = "identity.invited" // row 24: an invitation to a computer is used once
	IdentityUsed    Name = "identity.used"    // row 24: a link that was used is refused
	IdentityForget  Name = "identity.forget"  // row 24: a claim removes the account's links
	IdentityTicket  Name = "identity.ticket"  // row 24: a ticket is removed as it is used
	IdentityExpiry  Name = "identity.expiry"  // row 30: a session ends
	IdentityKind    Name = "identity.kind"    // rows 22, 30: a desktop's session is none of the console's
)

// Who may do what (internal/grant, and what keeps to it).
const (
	GrantMember   Name = "grant.member"   // row 23: a computer is there for its members only
	GrantRole     Name = "grant.role"     // row 23: a member does what the role allows
	GrantPower    Name = "grant.power"    // row 23: what is the machine's takes a power of its own
	GrantScope    Name = "grant.scope"    // row 23: a token does what it was made for, and no more
	GrantExpiry   Name = "grant.expiry"   // row 30: and for as long as it was made for
	GrantGiven    Name = "grant.given"    // row 23: nobody gives or takes a power that is not theirs
	GrantListed   Name = "grant.listed"   // row 23: computers are listed to their members only
	GrantCut      Name = "grant.cut"      // row 30: who loses a right loses the streams and sockets that it held
	GrantCommands Name = "grant.commands" // row 30: who leaves a computer leaves no command running in it
	OutputSession Name = "output.session" // row 23: what a command says is its own session's
)

// The bus (internal/bus).
const (
	BusReplies      Name = "bus.replies"      // row 33: a reply goes to the client's own inbox
	BusLive         Name = "bus.live"         // rows 30, 33: the bridge knows which credentials live
	BusRevoked      Name = "bus.revoked"      // rows 30, 33: the server knows which credentials were revoked
	BusPermissions  Name = "bus.permissions"  // row 33: a client's subjects are its own computer's
	BusStreams      Name = "bus.streams"      // row 33: a session's streams are its own
	StreamFollowers Name = "stream.followers" // row 33: a run's words go to the sessions that follow it
	BusSizes        Name = "bus.sizes"        // row 33: the bridge bounds a message
	BusPayload      Name = "bus.payload"      // row 33: the server bounds a client's message
)

// What is stored and sent (internal/blob, gateway, vault, workspace/keeper).
const (
	BlobQuota      Name = "blob.quota"        // rows 13, 45: what a computer stores is bounded
	BlobSize       Name = "blob.size"         // row 13: one blob is bounded
	GatewayKeys    Name = "gateway.keys"      // row 32: our key in what a provider says is removed
	VaultPrivate   Name = "vault.private"     // row 39: secrets that others can read are not used
	ArchiveNames   Name = "archive.names"     // row 11: an entry's name stays in its directory
	ArchiveLinks   Name = "archive.links"     // row 11: a hard link's target stays in its directory
	KeeperBeneath  Name = "keeper.beneath"    // row 11: trees are opened beneath their root, following no link
	ArchiveBytes   Name = "archive.bytes"     // row 27: what an archive unpacks to is bounded
	ArchiveEntries Name = "archive.entries"   // row 27: how many entries an archive has is bounded
	GitForced      Name = "keeper.git-config" // row 12: git's settings that start programs are forced
	GitOwn         Name = "keeper.git-dir"    // row 12: what .git holds of configuration, hooks and pointers elsewhere is put right before it is used
	GitPlainDiff   Name = "keeper.plain-diff" // row 12: no program that an attribute names shows what differs
	GitNames       Name = "keeper.git-names"  // row 12: what git takes for its own in a tree has another name in commits
)
