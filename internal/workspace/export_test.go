package workspace

const MaxReads = maxReads
