package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"slices"
	"strings"
	"testing"
)

const declarations = `
export interface ThingConfig extends cdktf.TerraformMetaArguments {
    /**
    * Docs at Terraform Registry: {@link https://example.com#display_name Thing#display_name}
    *
    * Two paragraphs.
    */
    readonly displayName: string;
    /**
    * Docs at Terraform Registry: {@link https://example.com#s3_key Thing#s3_key}
    */
    readonly s3Key?: string;
    /**
    * Docs at Terraform Registry: {@link https://example.com#tags Thing#tags}
    */
    readonly tags?: {
        [key: string]: string;
    };
    /**
    * Docs at Terraform Registry: {@link https://example.com#types Thing#types}
    */
    readonly types?: string[];
    /**
    * Docs at Terraform Registry: {@link https://example.com#on Thing#on}
    */
    readonly on?: boolean | cdktf.IResolvable;
    /**
    * part block
    *
    * Docs at Terraform Registry: {@link https://example.com#part Thing#part}
    */
    readonly part: ThingPart[] | cdktf.IResolvable;
    /**
    * ttl block
    *
    * Docs at Terraform Registry: {@link https://example.com#ttl Thing#ttl}
    */
    readonly ttl?: ThingTtl;
}
export interface ThingPart {
    /**
    * Docs at Terraform Registry: {@link https://example.com#size Thing#size}
    */
    readonly size: number;
    /**
    * Docs at Terraform Registry: {@link https://example.com#inner Thing#inner}
    */
    readonly inner?: ThingInner;
}
export interface ThingInner {
    /**
    * Docs at Terraform Registry: {@link https://example.com#x Thing#x}
    */
    readonly x?: string;
}
export declare class Thing extends cdktf.TerraformResource {
    static readonly tfResourceType = "aws_thing";
}
`

const code = `
class ThingPartOutputReference extends cdktf.ComplexObject {
    get size() { return this.getNumberAttribute('size'); }
}
class Thing extends cdktf.TerraformResource {
    constructor() {
        this._uris = new cdktf.StringMap(this, "uris");
    }
    get arn() { return this.getStringAttribute('arn'); }
}
`

// pack makes a package of npm.
func pack(t *testing.T, files map[string]string) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func thing(t *testing.T, declarations string) resource {
	t.Helper()
	p, err := readPackage(pack(t, map[string]string{
		"package/package.json":         `{"version":"1.2.3","cdktf":{"provider":{"version":"5.6.7"}}}`,
		"package/lib/thing/index.d.ts": declarations,
		"package/lib/thing/index.js":   code,
		"package/lib/other/index.d.ts": "export interface OtherConfig {\n}\n",
	}), []string{"aws_thing"})
	if err != nil {
		t.Fatal(err)
	}
	if p.version != "1.2.3" || p.provider != "5.6.7" {
		t.Errorf("%s of %s", p.version, p.provider)
	}
	r, err := p.resource("aws_thing")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWhatIsDeclaredIsListed(t *testing.T) {
	var b strings.Builder
	write(&b, "aws_thing", thing(t, declarations), thing(t, declarations))
	const want = `
aws_thing
  display_name string required
  on bool
  part blocks required
  part.inner object
  part.inner.x string
  part.size number required
  s3_key string
  tags map
  ttl block
  types list
  outputs: arn uris
`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
}

// What one version lacks, or has otherwise, is not listed; what one requires is
// required.
func TestBothVersionsCount(t *testing.T) {
	other := strings.NewReplacer("s3_key Thing#s3_key", "key Thing#key", "readonly displayName:", "readonly displayName?:", "    * ttl block\n", "").Replace(declarations)
	for _, versions := range [][2]resource{{thing(t, declarations), thing(t, other)}, {thing(t, other), thing(t, declarations)}} {
		var b strings.Builder
		write(&b, "aws_thing", versions[0], versions[1])
		text := b.String()
		if !strings.Contains(text, "display_name string required\n") || strings.Contains(text, "key") || strings.Contains(text, "ttl") {
			t.Errorf("%s", text)
		}
	}
}

func TestAnotherPackageIsRefused(t *testing.T) {
	p, err := readPackage(pack(t, map[string]string{"package/package.json": `{"version":"1.2.3"}`}), []string{"aws_thing"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.resource("aws_thing"); err == nil {
		t.Error("a package without the resource is taken")
	}
	if _, err := readPackage(pack(t, map[string]string{"package/readme": ""}), nil); err == nil {
		t.Error("a package without package.json is taken")
	}
	if _, err := readPackage(strings.NewReader("no gzip"), nil); err == nil {
		t.Error("a text is taken for a package")
	}
}
