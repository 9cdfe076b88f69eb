// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"sluice.dev/manifests"
)

var kustomizationBlock = regexp.MustCompile("(?ms)^( *)```yaml\n(?:(?:# kustomization.yaml\n)?apiVersion: kustomize|patches:).*?^ *```$")

// Each kustomization and each list of patches in the pages can be built with an overlay, and leaves Deployments that can roll.
func TestKustomizationsOfDocumentation(t *testing.T) {
	pages, err := filepath.Glob("../../docs/platform/*.md")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range kustomizationBlock.FindAllString(string(raw), -1) {
			count++
			text := strings.TrimSuffix(strings.TrimPrefix(block, "```yaml\n"), "```")
			text = strings.ReplaceAll(text, "../sluice/manifests/", "../")
			if strings.HasPrefix(text, "patches:") {
				text = "resources: [../" + manifests.Production + "]\n" + text
			}
			objects, err := manifests.BuildOverlay([]byte(text))
			if err != nil {
				t.Errorf("%s: %v in\n%s", page, err, text)
				continue
			}
			for _, object := range objects {
				if object.GetKind() != "Deployment" {
					continue
				}
				var d appsv1.Deployment
				decode(t, object, &d)
				// Two pods of a Deployment cannot have the ports of one node.
				if pod := d.Spec.Template.Spec; pod.HostNetwork && d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue() > 0 {
					t.Errorf("%s: the Deployment %s cannot be replaced on as many nodes as it has replicas: its new pod needs the ports of the old one", page, d.Name)
				}
			}
		}
	}
	if count < 4 {
		t.Errorf("only %d kustomizations were found", count)
	}
}
