package defence

// The host's hand in trees that boxes write (internal/sandbox/local and its hostfs).
const (
	HostBeneath    Name = "host.beneath"       // row 41: opened beneath a directory of the host's, without following links
	HostDescriptor Name = "host.descriptor"    // row 41: a mount's source goes to bubblewrap by descriptor
	HostSame       Name = "host.same"          // row 41: what the launcher opens is what the host opened
	HostTargets    Name = "host.targets"       // row 41: a mount's target in a box's tree is opened without following links
	HostGuestLast  Name = "host.guest-last"    // row 41: nothing is mounted over the guest's program
	RemoveClosed   Name = "host.remove-closed" // row 43: modes keep nothing from being removed
	RemoveLifting  Name = "host.remove-deep"   // row 43: depth keeps nothing from being removed
	MeasureDeep    Name = "host.measure-deep"  // row 43: neither depth nor modes keep a tree from being measured
)
