package policy

// findings are warnings: what is allowed, and most probably not meant.
func (k *compiler) findings() {
}
