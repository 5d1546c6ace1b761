package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/weirlabs/weir/policy"
)

// openAPI is the part of an OpenAPI 3 document that names operations.
type openAPI struct {
	Servers []struct {
		URL string `yaml:"url"`
	} `yaml:"servers"`
	Paths map[string]map[string]any `yaml:"paths"`
}

const maxOpenAPI = 1 << 20

// fromOpenAPI is one operation of a document.
type fromOpenAPI struct{ name, match string }

// policyFromOpenAPI is a policy with the operations of an OpenAPI document.
func policyFromOpenAPI(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("the OpenAPI document cannot be read: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxOpenAPI+1))
	if err != nil {
		return nil, fmt.Errorf("the OpenAPI document cannot be read: %w", err)
	}
	if len(text) > maxOpenAPI {
		return nil, usage("weir init", "%s is larger than %d bytes", file, maxOpenAPI)
	}
	var doc openAPI
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, usage("weir init", "%s is not an OpenAPI document: %v", file, strings.SplitN(err.Error(), "\n", 2)[0])
	}
	ops := doc.operations()
	if len(ops) == 0 {
		return nil, usage("weir init", "%s names no operation under paths:", file)
	}
	out := written(file, ops)
	p, err := policy.Load(onlyFile(out), "weir.yaml", policy.Options{})
	var problems policy.Problems
	if p == nil && errors.As(err, &problems) {
		return nil, usage("weir init", "the operations of %s cannot be those of one policy: %s", file, problems[0].Message)
	}
	return out, nil
}

// onlyFile serves a policy that is not in a file yet.
type onlyFile string

func (f onlyFile) Open(string) (fs.File, error) { return textFile{strings.NewReader(string(f))}, nil }

var (
	notInNames = regexp.MustCompile(`[^a-z0-9]+`)
	wildcard   = regexp.MustCompile(`\{([^}]*)\}`)
	notInWords = regexp.MustCompile(`\W`)
	methods    = []string{"get", "head", "post", "put", "patch", "delete", "options"}
)

// operations are the operations of a document, by path and method.
func (d *openAPI) operations() []fromOpenAPI {
	base := ""
	if len(d.Servers) > 0 {
		if u, err := url.Parse(d.Servers[0].URL); err == nil {
			base = strings.TrimSuffix(u.Path, "/")
		}
	}
	taken := map[string]bool{}
	var out []fromOpenAPI
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range methods {
			item, ok := d.Paths[path][method]
			if !ok || !strings.HasPrefix(path, "/") {
				continue
			}
			id := ""
			if fields, ok := item.(map[string]any); ok {
				id, _ = fields["operationId"].(string)
			}
			if id == "" {
				id = method + " " + path
			}
			pattern := strings.ToUpper(method) + " " + base + wildcard.ReplaceAllStringFunc(path, func(w string) string {
				name := notInWords.ReplaceAllString(strings.Trim(w, "{}"), "_")
				if name == "" || '0' <= name[0] && name[0] <= '9' {
					name = "p" + name
				}
				return "{" + name + "}"
			})
			out = append(out, fromOpenAPI{unusedName(id, taken), pattern})
		}
	}
	return out
}

var humps = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// unusedName makes a name of an operation's id: createOrder is create-order.
func unusedName(id string, taken map[string]bool) string {
	const longest = 32
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(humps.ReplaceAllString(id, "$1-$2")), "-"), "-")
	if name == "" || name[0] < 'a' {
		name = "op-" + name
	}
	name = strings.Trim(name[:min(len(name), longest)], "-")
	free := name
	for n := 2; taken[free]; n++ {
		suffix := "-" + strconv.Itoa(n)
		free = name[:min(len(name), longest-len(suffix))] + suffix
	}
	taken[free] = true
	return free
}

// written is the policy: every operation has a limit to begin with, and watches.
func written(file string, ops []fromOpenAPI) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# yaml-language-server: $schema=weir.schema.json
# A first policy, with the operations of %s. Nothing is refused yet: put in the
# limits that you want, look at the decision log, and remove `+"`mode: shadow`"+`.
weir: 1
mode: shadow

# Who is calling, and what stands in front: see docs/policy.md.
# auth:
#   jwt: {jwks_url: https://issuer.example/.well-known/jwks.json}
client_ip: {from: socket}

application:
  plans:
    from: jwt.plans
    order: [free]
    free:
`, strings.Map(oneLine, file))
	for _, o := range ops {
		fmt.Fprintf(&b, "      %s: quota 1000/hour\n", o.name)
	}
	b.WriteString("  operations:\n")
	for _, o := range ops {
		fmt.Fprintf(&b, "    %s: {match: %s}\n", o.name, strconv.Quote(o.match))
	}
	return b.Bytes()
}

// oneLine keeps a file's name within its comment.
func oneLine(r rune) rune {
	if r < ' ' {
		return '?'
	}
	return r
}
