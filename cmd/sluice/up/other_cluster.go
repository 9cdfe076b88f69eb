// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// Overlays are the installations that [Install] can make, the default first.
var Overlays = []string{"production", "minimal", "rke2", "without-operator"}

// Installation is an installation of the shipped manifests in a cluster that this program does not run.
type Installation struct {
	// Overlay is one of [Overlays].
	Overlay string
	// Registry is the registry and the folder of the images, such as registry.example.org/sluice.
	Registry string
	// Tag is the tag of the images.
	Tag string
}

// Images returns the images of the installation.
func (i Installation) Images() []string {
	var images []string
	for _, program := range sluicePrograms {
		images = append(images, fmt.Sprintf("%s/sluice-%s:%s", strings.TrimSuffix(i.Registry, "/"), program, i.Tag))
	}
	return images
}

func (i Installation) objects() ([]*unstructured.Unstructured, error) {
	if !slices.Contains(Overlays, i.Overlay) {
		return nil, fmt.Errorf("overlay %q is none of %s", i.Overlay, strings.Join(Overlays, ", "))
	}
	var kustomization bytes.Buffer
	fmt.Fprintf(&kustomization, "resources: [../overlays/%s]\nimages:\n", i.Overlay)
	for _, image := range i.Images() {
		name, tag := image[:strings.LastIndexByte(image, ':')], i.Tag
		fmt.Fprintf(&kustomization, "- {name: %q, newName: %q, newTag: %q}\n", name[strings.LastIndexByte(name, '/')+1:], name, tag)
	}
	return manifests.BuildOverlay(kustomization.Bytes())
}

// Install applies the shipped manifests in a cluster, as `kubectl apply --server-side -k` does. It fails, and overwrites nothing, at
// a field that another program has set. It can be repeated.
func Install(ctx context.Context, config *rest.Config, i Installation, output io.Writer) error {
	objects, err := i.objects()
	if err != nil {
		return err
	}
	admin, err := newAdminClient(config)
	if err != nil {
		return err
	}
	fmt.Fprintf(output, "Applying %d objects\n", len(objects))
	err = applyWith(ctx, admin, objects)
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%w; another program has installed Sluice in this cluster: upgrade it with that program", err)
	}
	if err != nil {
		return err
	}
	return waitForGroup(ctx, admin, v1alpha1.Group)
}
