// This file lets the compiler take declarations without a body, which stand in close.go.
