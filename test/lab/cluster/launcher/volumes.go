// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// volumeFiles are the files of a volume by their paths in it.
type volumeFiles map[string][]byte

// writeVolumes writes the pod's volumes. It writes only files that have changed, and removes
// those that are gone, so that it can be called again at any time.
func (w *worker) writeVolumes(ctx context.Context, pod *corev1.Pod) error {
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		folder := w.folders[volume.Name]
		if volume.HostPath != nil {
			if err := prepareHostPath(folder, volume.HostPath); err != nil {
				return fmt.Errorf("volume %s: %w", volume.Name, err)
			}
			continue
		}
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("volume %s: %w", volume.Name, err)
		}
		if volume.EmptyDir != nil {
			continue
		}
		files, err := w.volumeFiles(ctx, pod, volume)
		if err != nil {
			return fmt.Errorf("volume %s: %w", volume.Name, err)
		}
		if err := syncFolder(folder, files); err != nil {
			return fmt.Errorf("volume %s: %w", volume.Name, err)
		}
	}
	return nil
}

// volumeFolders returns the folders of a pod's volumes by their names.
func (l *launcher) volumeFolders(pod *corev1.Pod, podDir string) map[string]string {
	folders := map[string]string{}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if volume.HostPath != nil {
			folders[volume.Name] = l.HostFolder(pod.Spec.NodeName, filepath.Clean(volume.HostPath.Path))
		} else {
			folders[volume.Name] = filepath.Join(podDir, "volumes", volume.Name)
		}
	}
	return folders
}

// prepareHostPath checks a folder of the node, or creates it if the volume's type says so.
func prepareHostPath(folder string, source *corev1.HostPathVolumeSource) error {
	kind := ptr.Deref(source.Type, corev1.HostPathUnset)
	if kind == corev1.HostPathDirectoryOrCreate {
		return os.MkdirAll(folder, 0o700)
	}
	info, err := os.Stat(folder)
	switch {
	case kind == corev1.HostPathUnset && (err == nil || errors.Is(err, fs.ErrNotExist)):
		return nil
	case err != nil:
		return fmt.Errorf("hostPath %s: %w", source.Path, err)
	case kind == corev1.HostPathDirectory && !info.IsDir():
		return fmt.Errorf("hostPath %s: %s is no folder", source.Path, folder)
	}
	return nil
}

func (w *worker) volumeFiles(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (volumeFiles, error) {
	files := volumeFiles{}
	switch {
	case volume.ConfigMap != nil:
		return files, w.addConfigMap(files, volume.ConfigMap.Name, volume.ConfigMap.Items, volume.ConfigMap.Optional)
	case volume.Secret != nil:
		return files, w.addSecret(files, volume.Secret.SecretName, volume.Secret.Items, volume.Secret.Optional)
	case volume.DownwardAPI != nil:
		return files, w.addDownward(files, pod, volume.DownwardAPI.Items)
	}
	for _, source := range volume.Projected.Sources {
		var err error
		switch {
		case source.ConfigMap != nil:
			err = w.addConfigMap(files, source.ConfigMap.Name, source.ConfigMap.Items, source.ConfigMap.Optional)
		case source.Secret != nil:
			err = w.addSecret(files, source.Secret.Name, source.Secret.Items, source.Secret.Optional)
		case source.DownwardAPI != nil:
			err = w.addDownward(files, pod, source.DownwardAPI.Items)
		case source.ServiceAccountToken != nil:
			files[source.ServiceAccountToken.Path], err = w.tokens.get(ctx, pod, source.ServiceAccountToken)
		}
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// addConfigMap adds the files of a ConfigMap. Its text has the pod's paths and ports, which
// are replaced.
func (w *worker) addConfigMap(files volumeFiles, name string, items []corev1.KeyToPath, optional *bool) error {
	object := w.launcher.configMap(w.namespace, name)
	if object == nil {
		if ptr.Deref(optional, false) {
			return nil
		}
		return fmt.Errorf("configmap %q not found", name)
	}
	data := volumeFiles{}
	for key, value := range object.Data {
		data[key] = []byte(w.rewriter.rewrite(value))
	}
	for key, value := range object.BinaryData {
		data[key] = value
	}
	return files.addItems("configmap", name, data, items, optional)
}

func (w *worker) addSecret(files volumeFiles, name string, items []corev1.KeyToPath, optional *bool) error {
	object := w.launcher.secret(w.namespace, name)
	if object == nil {
		if ptr.Deref(optional, false) {
			return nil
		}
		return fmt.Errorf("secret %q not found", name)
	}
	return files.addItems("secret", name, object.Data, items, optional)
}

func (w *worker) addDownward(files volumeFiles, pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile) error {
	for _, item := range items {
		value, err := w.downwardValue(pod, item.FieldRef, item.ResourceFieldRef)
		if err != nil {
			return fmt.Errorf("item %s: %w", item.Path, err)
		}
		files[item.Path] = []byte(value)
	}
	return nil
}

// addItems adds all data, or the items.
func (f volumeFiles) addItems(kind, name string, data volumeFiles, items []corev1.KeyToPath, optional *bool) error {
	if len(items) == 0 {
		for key, value := range data {
			f[key] = value
		}
		return nil
	}
	for _, item := range items {
		value, found := data[item.Key]
		if !found && !ptr.Deref(optional, false) {
			return fmt.Errorf("%s %q has no key %q", kind, name, item.Key)
		}
		if found {
			f[item.Path] = value
		}
	}
	return nil
}

// syncFolder makes a folder contain these files only.
func syncFolder(folder string, files volumeFiles) error {
	for path, content := range files {
		// The API server allows no path that leaves the volume; a Secret's key is one too.
		if !filepath.IsLocal(path) || !utf8.ValidString(path) {
			return fmt.Errorf("path %q leaves the volume", path)
		}
		if err := writeIfChanged(filepath.Join(folder, path), content); err != nil {
			return err
		}
	}
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		if _, wanted := files[name]; wanted {
			return nil
		}
		return os.Remove(path)
	})
}

// writeIfChanged writes a file of mode 0600 atomically.
func writeIfChanged(path string, content []byte) error {
	existing, err := os.ReadFile(path)
	if err == nil && bytes.Equal(existing, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// mountFolders returns the folders of all mounts of a pod by mount path. The files of a pod
// are the same for all its containers, so a path must not mean two volumes.
func mountFolders(pod *corev1.Pod, folders map[string]string) (map[string]string, error) {
	mounts := map[string]string{}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, mount := range container.VolumeMounts {
			path := filepath.Clean(mount.MountPath)
			if other, taken := mounts[path]; taken && other != folders[mount.Name] {
				return nil, fmt.Errorf("container %s: mountPath %s is another volume in another container", container.Name, mount.MountPath)
			}
			mounts[path] = folders[mount.Name]
		}
	}
	return mounts, nil
}
