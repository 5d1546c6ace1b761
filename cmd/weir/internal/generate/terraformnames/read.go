package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
)

// bindings are the declarations of one package.
type bindings struct {
	version  string            // of the package
	provider string            // its version
	types    map[string]string // by resource: its declarations, all files
	code     map[string]string // by resource: its index.js
}

// resource is what one resource has.
type resource struct {
	arguments map[string]argument // by path, such as rule.statement.rate_based_statement.limit
	outputs   map[string]bool
}

// argument is an argument of a resource, or a block.
type argument struct {
	kind     string // string, number, bool, list, map, object, block or blocks
	required bool
}

// folder is where a package keeps a resource.
func folder(name string) string {
	if rest, ok := strings.CutPrefix(name, "data."); ok {
		return "data-" + strings.ReplaceAll(rest, "_", "-")
	}
	return strings.ReplaceAll(strings.TrimPrefix(name, "aws_"), "_", "-")
}

// readPackage reads the declarations of some resources from a package of npm.
func readPackage(r io.Reader, names []string) (bindings, error) {
	b := bindings{types: map[string]string{}, code: map[string]string{}}
	wanted := map[string]string{}
	for _, name := range names {
		wanted["package/lib/"+folder(name)] = name
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return b, err
	}
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return b, err
		}
		dir := strings.TrimSuffix(path.Dir(h.Name), "/index-structs")
		name, base := wanted[dir], path.Base(h.Name)
		if name == "" && h.Name != "package/package.json" {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return b, err
		}
		switch {
		case h.Name == "package/package.json":
			if err := b.about(text); err != nil {
				return b, err
			}
		case strings.HasSuffix(base, ".d.ts"):
			b.types[name] += string(text)
		case base == "index.js":
			b.code[name] += string(text)
		}
	}
	if b.version == "" {
		return b, errors.New("it holds no package.json")
	}
	return b, nil
}

func (b *bindings) about(text []byte) error {
	var v struct {
		Version string
		CDKTF   struct{ Provider struct{ Version string } }
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("package.json: %w", err)
	}
	b.version, b.provider = v.Version, v.CDKTF.Provider.Version
	return nil
}

var (
	declared = regexp.MustCompile(`(?ms)^export interface (\w+)(?: extends [\w.]+)? \{\n(.*?)^\}`)
	member   = regexp.MustCompile(`(?ms)^    /\*\*\n(.*?)\*/\n    readonly (\w+)(\??): (.*?);$`)
	named    = regexp.MustCompile(`#(\w+) \w+#\w+\}`)
	isBlock  = regexp.MustCompile(`(?m)^ *\* \w+ block$`)
	asked    = regexp.MustCompile(`(?:get\w+Attribute\(|this\._\w+ = new [\w.]+\(this, )["'](\w+)["']`)
)

// resource reads what a resource has.
func (b *bindings) resource(name string) (resource, error) {
	types := b.types[name]
	interfaces := map[string]string{}
	config := ""
	for _, m := range declared.FindAllStringSubmatch(types, -1) {
		interfaces[m[1]] = m[2]
		if strings.Contains(m[0], " extends cdktf.TerraformMetaArguments {") {
			config = m[1]
		}
	}
	if config == "" || !strings.Contains(types, `tfResourceType = "`+strings.TrimPrefix(name, "data.")+`"`) {
		return resource{}, fmt.Errorf("the package declares no %s", name)
	}
	r := resource{arguments: map[string]argument{}, outputs: map[string]bool{}}
	if err := r.read(interfaces, config, ""); err != nil {
		return resource{}, fmt.Errorf("%s: %w", name, err)
	}
	if name == "aws_wafv2_web_acl" {
		r.statements()
	}
	_, class, ok := strings.Cut(b.code[name], " extends cdktf.Terraform")
	if !ok {
		return resource{}, fmt.Errorf("the package has no class for %s", name)
	}
	for _, m := range asked.FindAllStringSubmatch(class, -1) {
		r.outputs[m[1]] = true
	}
	return r, nil
}

// read adds the members of an interface under a path.
func (r *resource) read(interfaces map[string]string, name, within string) error {
	for _, m := range member.FindAllStringSubmatch(interfaces[name], -1) {
		about, optional, kind := m[1], m[3] != "", m[4]
		n := named.FindStringSubmatch(about)
		if n == nil {
			return fmt.Errorf("%s.%s has no name of Terraform", name, m[2])
		}
		at := within + n[1]
		kind = strings.TrimSuffix(kind, " | cdktf.IResolvable")
		inner, many := strings.CutSuffix(kind, "[]")
		a := argument{required: !optional}
		_, nested := interfaces[inner]
		switch {
		case isBlock.MatchString(about) && many:
			a.kind = "blocks"
		case isBlock.MatchString(about):
			a.kind = "block"
		case nested:
			a.kind = "object"
		case strings.HasPrefix(kind, "{") && !many:
			a.kind = "map"
		case many || strings.HasPrefix(kind, "Array<"):
			a.kind = "list"
		case kind == "boolean":
			a.kind = "bool"
		default:
			a.kind = kind
		}
		r.arguments[at] = a
		if nested {
			if err := r.read(interfaces, inner, at+"."); err != nil {
				return err
			}
		}
	}
	return nil
}
