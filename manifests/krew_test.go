// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// krewPlugin has the fields of a manifest of krew.
type krewPlugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string         `json:"version"`
		Homepage         string         `json:"homepage"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Caveats          string         `json:"caveats"`
		Platforms        []krewPlatform `json:"platforms"`
	} `json:"spec"`
}

type krewPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Bin    string `json:"bin"`
}

// A release has an archive for each platform of the manifest, and the manifest has its checksum.
func TestKrewManifest(t *testing.T) {
	dist := t.TempDir()
	var want []krewPlatform
	for _, platform := range releasePlatforms(t) {
		system, arch, _ := strings.Cut(platform, "/")
		name := "sluice_v1.2.3_" + system + "_" + arch + ".tar.gz"
		sum := sha256.Sum256([]byte(platform))
		if err := os.WriteFile(filepath.Join(dist, name), []byte(platform), 0o600); err != nil {
			t.Fatal(err)
		}
		p := krewPlatform{
			URI:    "https://github.com/owner/sluice/releases/download/v1.2.3/" + name,
			SHA256: hex.EncodeToString(sum[:]), Bin: "sluice",
		}
		p.Selector.MatchLabels = map[string]string{"os": system, "arch": arch}
		want = append(want, p)
	}
	command := exec.CommandContext(t.Context(), "../.ci/krew-manifest", dist, "v1.2.3", "https://github.com/owner/sluice")
	raw, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	var plugin krewPlugin
	if err := yaml.UnmarshalStrict(raw, &plugin); err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	if diff := cmp.Diff(want, plugin.Spec.Platforms); diff != "" {
		t.Errorf("the platforms differ from those of .ci/release-files (-want +got):\n%s", diff)
	}
	if plugin.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || plugin.Kind != "Plugin" || plugin.Metadata.Name != "sluice" {
		t.Errorf("the manifest is a %s %s named %s", plugin.APIVersion, plugin.Kind, plugin.Metadata.Name)
	}
	if plugin.Spec.Version != "v1.2.3" || plugin.Spec.Homepage != "https://github.com/owner/sluice" {
		t.Errorf("version %q, homepage %q", plugin.Spec.Version, plugin.Spec.Homepage)
	}
	if length := len(plugin.Spec.ShortDescription); length == 0 || length > 50 {
		t.Errorf("the short description has %d characters; krew shows 50 in its list", length)
	}
	if rest := regexp.MustCompile(`VERSION|RELEASE|HOMEPAGE|SHA256\(`).Find(raw); rest != nil {
		t.Errorf("%s is not filled in:\n%s", rest, raw)
	}
}

// Without an archive there is no manifest.
func TestKrewManifestWithoutArchive(t *testing.T) {
	command := exec.CommandContext(t.Context(), "../.ci/krew-manifest", t.TempDir(), "v1.2.3", "https://github.com/owner/sluice")
	if output, err := command.Output(); err == nil {
		t.Errorf("the manifest has a platform without archive:\n%s", output)
	}
}

// releasePlatforms returns the platforms for which .ci/release-files builds the command line.
func releasePlatforms(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("../.ci/release-files")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`for platform in (.*); do`).FindSubmatch(raw)
	if found == nil {
		t.Fatal(".ci/release-files has no loop over platforms")
	}
	return strings.Fields(string(found[1]))
}
