package policy

// Expressions compiles the expressions of this package's tests. main_test.go
// sets it: package expression imports this one, so only tests outside of it can
// import both.
var Expressions Compiler
