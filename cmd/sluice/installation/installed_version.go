// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/doctor"
)

// InstalledVersion is the version of one object of an installation.
type InstalledVersion struct {
	// Object is its kind, namespace and name.
	Object string
	// Manifest is the version of its manifest, and Image the tag of its image. Each is empty if it is unknown.
	Manifest, Image string
}

// String returns the version as people read it.
func (v InstalledVersion) String() string {
	switch {
	case v.Image == "" || v.Image == v.Manifest:
		return v.Object + " " + cmp.Or(v.Manifest, "of an unknown version")
	case v.Manifest == "":
		return v.Object + " with the image " + v.Image
	}
	return v.Object + " " + v.Manifest + " with the image " + v.Image
}

// FindInstalled returns the versions of the objects of Sluice in a cluster: the Deployments, the agent and the kind Project. It is
// empty if the cluster has none of them.
func FindInstalled(ctx context.Context, config *rest.Config) ([]InstalledVersion, error) {
	reader, err := NewAdminClient(config)
	if err != nil {
		return nil, err
	}
	var found []InstalledVersion
	webhook, lifecycle, agent, projects := &appsv1.Deployment{}, &appsv1.Deployment{}, &appsv1.DaemonSet{}, &apiextensionsv1.CustomResourceDefinition{}
	for _, object := range []struct {
		kind, namespace, name string
		into                  client.Object
		pod                   *corev1.PodSpec
	}{
		{"Deployment", v1alpha1.SystemNamespace, webhookName, webhook, &webhook.Spec.Template.Spec},
		{"Deployment", v1alpha1.SystemNamespace, lifecycleName, lifecycle, &lifecycle.Spec.Template.Spec},
		{"DaemonSet", v1alpha1.AgentNamespace, agentName, agent, &agent.Spec.Template.Spec},
		{"CustomResourceDefinition", "", "projects." + v1alpha1.Group, projects, &corev1.PodSpec{}},
	} {
		err := reader.Get(ctx, client.ObjectKey{Namespace: object.namespace, Name: object.name}, object.into)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the installed version: %w", err)
		}
		installed := InstalledVersion{
			Object:   object.kind + " " + strings.TrimPrefix(object.namespace+"/"+object.name, "/"),
			Manifest: object.into.GetLabels()[v1alpha1.LabelVersion],
		}
		if containers := object.pod.Containers; len(containers) > 0 {
			installed.Image = doctor.ImageTag(containers[0].Image)
		}
		found = append(found, installed)
	}
	return found, nil
}

// CheckUpgrade returns an error if an installed object is newer than this installation. Versions that cannot be compared, such as
// a commit, are no error.
func (i Installation) CheckUpgrade(installed []InstalledVersion) error {
	for _, object := range installed {
		for _, pair := range []struct{ what, present, next string }{
			{"the manifests of this program are of", cmp.Or(object.Manifest, object.Image), i.Version},
			{"--image-tag is", object.Image, i.Tag},
		} {
			if isOlder(pair.next, pair.present) {
				return fmt.Errorf("the cluster has %s of Sluice %s, and %s %s, which is older: use the command line and the images of %[2]s, "+
					"or read docs/platform/upgrades.md#roll-back and install the older version with --allow-downgrade",
					object.Object, pair.present, pair.what, pair.next)
			}
		}
	}
	return nil
}

// describePattern is what `git describe` appends to the last tag: the number of commits since then.
var describePattern = regexp.MustCompile(`-(\d{1,6})-g[0-9a-f]+(-dirty)?$`)

// isOlder reports whether a version is older than another. It is false if one of them is no version.
func isOlder(older, newer string) bool {
	a, commitsA, okA := parseVersion(older)
	b, commitsB, okB := parseVersion(newer)
	return okA && okB && (a.LessThan(b) || a.EqualTo(b) && commitsA < commitsB)
}

// parseVersion returns a version such as v0.3.0-rc.1, and the number of commits since its tag.
func parseVersion(text string) (parsed *version.Version, commits int, ok bool) {
	if since := describePattern.FindStringSubmatch(text); since != nil {
		commits, _ = strconv.Atoi(since[1]) // at most six digits
		text = strings.TrimSuffix(text, since[0])
	}
	parsed, err := version.ParseSemantic(text)
	return parsed, commits, err == nil
}
