package lambdalimit

import "github.com/weirlabs/weir/policy"

// Read says what this package makes of an event: what a policy sees of it, and
// who calls, as the service in front of the function vouches for it. It is for
// tools that explain the policy p; a function uses [Wrap]. The error is an
// *[UnknownEvent].
func Read(payload []byte, p *policy.Policy, o Options) (policy.Attributes, policy.Identity, error) {
	e, err := read(payload)
	if err != nil {
		return policy.Attributes{}, policy.Identity{}, err
	}
	return e.attributes(&o), e.identity(o.listClaims(p)), nil
}
