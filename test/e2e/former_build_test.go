// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// formerCommit is the former version: upgrades start from it, and rollbacks return to it. After a release it is the commit of the
// released tag (docs/developer/releases.md).
const formerCommit = "227912a00915c286d38e1722899fb898ae0f7990"

// The versions that the two builds report. They are one minor version apart, as the supported difference.
const (
	formerVersion  = "v0.1.0"
	presentVersion = "v0.2.0"
)

// versionedBuild is a build of Sluice.
type versionedBuild struct {
	version string
	// bin has the programs.
	bin string
	// objects are those of the installation that `sluice up` makes, as shipped: it amends the ConfigMaps.
	objects []*unstructured.Unstructured
}

// buildBothVersions builds the former and the present version.
func buildBothVersions(t *testing.T) (former, present versionedBuild) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("SLUICE_WHOLE_HISTORY") == "" {
		t.Skip("it builds the former version from the history: set SLUICE_WHOLE_HISTORY=1 in a clone that has it")
	}
	if err := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", formerCommit+"^{commit}").Run(); err != nil {
		t.Fatalf("this clone lacks the former version, commit %s: check out the whole history (fetch-depth: 0)", formerCommit)
	}
	sources := t.TempDir()
	extract := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", `git -C "$1" archive "$2" | tar -x -C "$3"`, "extract", root, formerCommit, sources)
	if out, err := extract.CombinedOutput(); err != nil {
		t.Fatalf("extract the former version: %v: %s", err, out)
	}
	return buildVersion(t, sources, formerVersion), buildVersion(t, root, presentVersion)
}

// buildVersion builds the programs and the objects in a folder of sources. The packages that both versions share are compiled
// once.
func buildVersion(t *testing.T, sources, version string) versionedBuild {
	t.Helper()
	b := versionedBuild{version: version, bin: t.TempDir()}
	for module, programs := range map[string][]string{
		"": {"./cmd/sluice", "./cmd/webhook", "./cmd/lifecycle"}, "test/lab": {"./cmd/sluice-lab", "./cmd/sluice-lab-gpuagent"},
	} {
		compile := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false",
			"-ldflags", "-s -w -X sluice.dev/api/config.Version="+version, "-o", b.bin+"/")
		compile.Args = append(compile.Args, programs...)
		compile.Dir, compile.Env = filepath.Join(sources, module), append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		if out, err := compile.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v: %s", version, err, out)
		}
	}
	// The overlay of `sluice up` stands beside the folders of the manifests.
	overlay, err := os.ReadFile(filepath.Join(sources, "test", "lab", "up", "overlay.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	shipped := filepath.Join(t.TempDir(), "manifests")
	if err := os.CopyFS(shipped, os.DirFS(filepath.Join(sources, "manifests"))); err != nil {
		t.Fatal(err)
	}
	const folder = "embedded"
	if err := os.Mkdir(filepath.Join(shipped, folder), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shipped, folder, "kustomization.yaml"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if b.objects, err = manifests.BuildFrom(os.DirFS(shipped), folder); err != nil {
		t.Fatal(err)
	}
	return b
}

// isConfiguration reports whether an object is a ConfigMap: those of the cluster have the settings of its user, which each
// version has to understand.
func isConfiguration(o *unstructured.Unstructured) bool { return o.GetKind() == "ConfigMap" }

func isDefinition(o *unstructured.Unstructured) bool {
	return o.GetKind() == "CustomResourceDefinition"
}

// runsProgram reports whether an object has pods.
func runsProgram(o *unstructured.Unstructured) bool {
	return o.GetKind() == "Deployment" || o.GetKind() == "DaemonSet"
}

// apply applies the selected objects of a build.
func (s *sluiceCluster) apply(t *testing.T, b *versionedBuild, selected func(*unstructured.Unstructured) bool) {
	t.Helper()
	applied := 0
	for _, object := range b.objects {
		if !selected(object) {
			continue
		}
		configuration := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
		if err := s.adminClient.Apply(t.Context(), configuration, client.FieldOwner(v1alpha1.FieldManagerCLI), client.ForceOwnership); err != nil {
			t.Fatalf("apply %s %s of %s: %v", object.GetKind(), object.GetName(), b.version, err)
		}
		applied++
	}
	if applied == 0 {
		t.Fatalf("%s has none of these objects", b.version)
	}
}

// changeVersion replaces the pods of a component by those of a build, and waits until they run. The launcher runs the programs that
// lie beside that of the cluster.
func (s *sluiceCluster) changeVersion(t *testing.T, b *versionedBuild, component string) {
	t.Helper()
	program := component
	if component == "gpuagent" { // on simulated GPUs
		program = "sluice-lab-gpuagent"
	}
	installProgram(t, filepath.Dir(s.binary), filepath.Join(b.bin, program))
	for _, object := range b.objects {
		if !runsProgram(object) || object.GetName() != component {
			continue
		}
		object = object.DeepCopy()
		containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		if err != nil || len(containers) != 1 {
			t.Fatalf("%s has %d containers: %v", component, len(containers), err)
		}
		containers[0].(map[string]any)["image"] = "sluice-" + component + ":" + b.version
		if err := unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers"); err != nil {
			t.Fatal(err)
		}
		one := versionedBuild{version: b.version, objects: []*unstructured.Unstructured{object}}
		s.apply(t, &one, runsProgram)
		out := s.mustKubectl(t, "rollout", "status", "--timeout", timeStepTimeout.String(), "--namespace", object.GetNamespace(),
			strings.ToLower(object.GetKind())+"/"+component)
		t.Log(strings.TrimSpace(fmt.Sprintf("%s %s: %s", component, b.version, out[strings.LastIndexByte(strings.TrimSpace(out), '\n')+1:])))
		return
	}
	t.Fatalf("%s has no %s", b.version, component)
}
