package config

import "golang.org/x/sys/unix"

// leastMemoryMB and mostMemoryMB bound what memoryOfBox returns. A compiler takes 2 GB for one package
// of generated code, and runs as often at a time as there are processors.
const leastMemoryMB, mostMemoryMB = 2048, 4096

// memoryOfBox is the default of Runtime.MemoryMB: half of the machine's memory, within the bounds.
func memoryOfBox() int {
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return leastMemoryMB // what is known to be enough for most
	}
	return halfMB(uint64(si.Totalram) * uint64(si.Unit))
}

func halfMB(machine uint64) int {
	return int(min(max(machine>>21, leastMemoryMB), mostMemoryMB))
}
