// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
)

func TestOlderVersions(t *testing.T) {
	for _, tc := range []struct {
		version, other string
		want           bool
	}{
		{"v0.1.0", "v0.2.0", true},
		{"v0.2.0", "v0.1.0", false},
		{"v0.2.0", "v0.2.0", false},
		{"v0.9.0", "v0.10.0", true},
		{"v1.0.0-rc.1", "v1.0.0", true},
		{"v1.0.0-rc.2", "v1.0.0-rc.10", true},
		{"0.1.0", "v0.2.0", true},
		{"v0.3.0", "v0.3.0-12-g1a2b3c4", true},
		{"v0.3.0-12-g1a2b3c4", "v0.3.0", false},
		{"v0.3.0-2-gabcdef0", "v0.3.0-12-g1a2b3c4-dirty", true},
		{"v0.3.0-12-g1a2b3c4", "v0.4.0", true},
		{"unknown", "v0.2.0", false},
		{"v0.1.0", "1a2b3c4", false},
		{"", "v0.2.0", false},
		{"latest", "", false},
		{"v0.1", "v0.2.0", false},
		{"v0.1.0", "v0.2.0\x1b[2J", false},
	} {
		if got := isOlder(tc.version, tc.other); got != tc.want {
			t.Errorf("%q is older than %q: %v, want %v", tc.version, tc.other, got, tc.want)
		}
	}
}

func FuzzOlderVersions(f *testing.F) {
	for _, seed := range []string{"v0.1.0", "v0.3.0-12-g1a2b3c4-dirty", "v1.0.0-rc.1+build", "unknown", "", "v99999999999999999999.0.0", "v0.1.0-999999-gf"} {
		f.Add(seed, "v0.3.0")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if isOlder(a, b) && isOlder(b, a) {
			t.Errorf("%q and %q are older than each other", a, b)
		}
	})
}

// A version is never older than itself, and the order of three versions has no cycle.
func TestOlderVersionsAreOrdered(t *testing.T) {
	text := rapid.StringMatching(`v[0-2]\.[0-2]\.[0-2](-rc\.[0-2])?(-[0-9]{1,2}-g[0-9a-f]{7})?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := text.Draw(t, "a"), text.Draw(t, "b"), text.Draw(t, "c")
		if isOlder(a, a) || isOlder(a, b) && isOlder(b, a) || isOlder(a, b) && isOlder(b, c) && !isOlder(a, c) {
			t.Errorf("%s, %s and %s have no order", a, b, c)
		}
	})
}

func TestCheckUpgrade(t *testing.T) {
	installed := func(manifest, image string) []InstalledVersion {
		return []InstalledVersion{{Object: "Deployment sluice-system/webhook", Manifest: manifest, Image: image}}
	}
	for name, tc := range map[string]struct {
		installed []InstalledVersion
		version   string
		tag       string
		want      string // "" if it is allowed
	}{
		"a new cluster":               {nil, "v0.2.0", "v0.2.0", ""},
		"the same version":            {installed("v0.2.0", "v0.2.0"), "v0.2.0", "v0.2.0", ""},
		"an upgrade":                  {installed("v0.1.0", "v0.1.0"), "v0.2.0", "v0.2.0", ""},
		"older manifests":             {installed("v0.3.0", "mine"), "v0.2.0", "mine", "Deployment sluice-system/webhook of Sluice v0.3.0, and the manifests of this program are of v0.2.0, which is older"},
		"older images":                {installed("v0.2.0", "v0.2.0"), "v0.2.0", "v0.1.0", "--image-tag is v0.1.0, which is older"},
		"installed with kubectl":      {installed("", "v0.3.0"), "v0.2.0", "v0.3.0", "the manifests of this program are of v0.2.0"},
		"one of several is newer":     {append(installed("v0.2.0", ""), InstalledVersion{Object: "CustomResourceDefinition projects.sluice.dev", Manifest: "v0.3.0"}), "v0.2.0", "v0.2.0", "CustomResourceDefinition projects.sluice.dev of Sluice v0.3.0"},
		"builds without a version":    {installed("unknown", "1a2b3c4"), "unknown", "dev", ""},
		"a build over a release":      {installed("v0.3.0", "v0.3.0"), "unknown", "dev", ""},
		"newer manifests, same image": {installed("v0.2.0", "v0.2.0"), "v0.3.0", "v0.2.0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := Installation{Version: tc.version, Tag: tc.tag}.CheckUpgrade(tc.installed)
			if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "--allow-downgrade")) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// The objects have the version of the manifests, and the Deployments the numbers of pods.
func TestInstallationObjects(t *testing.T) {
	objects, err := Installation{Overlay: "production", Registry: "r", Tag: "dev", Version: "v0.2.0", Replicas: Replicas{Lifecycle: 3}}.objects()
	if err != nil {
		t.Fatal(err)
	}
	replicas := map[string]any{}
	for _, object := range objects {
		if version := object.GetLabels()[v1alpha1.LabelVersion]; version != "v0.2.0" {
			t.Errorf("%s %s has the version %q", object.GetKind(), object.GetName(), version)
		}
		if object.GetKind() == "Deployment" {
			replicas[object.GetName()], _, _ = unstructured.NestedFieldNoCopy(object.Object, "spec", "replicas")
			labels, _, err := unstructured.NestedStringMap(object.Object, "spec", "template", "metadata", "labels")
			if err != nil || labels[v1alpha1.LabelVersion] != "" {
				t.Errorf("the pods of %s have the label, so that each version of the CLI would replace them", object.GetName())
			}
		}
	}
	if replicas["webhook"] != int64(2) && replicas["webhook"] != 2 || replicas["lifecycle"] != int64(3) {
		t.Errorf("replicas %v", replicas)
	}
}
