// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// readInterval is the interval at which a directory is read, in machine time.
const readInterval = 2 * time.Second

// Directory is a directory with tls.crt, tls.key and ca.crt.
type Directory string

var _ Source = Directory("")

// String implements Source.
func (d Directory) String() string { return "directory " + string(d) }

// Watch implements Source. It reads the files, since a mounted Secret changes by links.
func (d Directory) Watch(ctx context.Context, contents chan<- Content) {
	ticker := time.NewTicker(readInterval) //nolint:forbidigo // machine time: the interval of reads
	defer ticker.Stop()
	var last *Content
	for {
		content := d.read()
		if last == nil || content.Err != nil || last.Err != nil || !maps.EqualFunc(content.Data, last.Data, bytes.Equal) {
			last = &content
			if !send(ctx, contents, content) {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (d Directory) read() Content {
	data := map[string][]byte{}
	for _, key := range []string{keyCertificate, keyPrivateKey, keyAuthority} {
		raw, err := os.ReadFile(filepath.Join(string(d), key))
		if err != nil {
			return Content{Err: err}
		}
		data[key] = raw
	}
	return Content{Data: data}
}

// Secret is one Secret of the cluster.
type Secret struct {
	// Client is a client of the core group.
	Client rest.Interface
	// Key names the Secret.
	Key client.ObjectKey
}

var _ Source = Secret{}

// String implements Source.
func (s Secret) String() string { return "Secret " + s.Key.String() }

// Watch implements Source. It watches this Secret only, as its rights allow.
func (s Secret) Watch(ctx context.Context, contents chan<- Content) {
	selected := cache.NewFilteredListWatchFromClient(s.Client, string(corev1.ResourceSecrets), s.Key.Namespace,
		func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.Key.Name).String()
		})
	informer := cache.NewSharedInformer(selected, &corev1.Secret{}, 0)
	sendObject := func(object any) {
		if secret, ok := object.(*corev1.Secret); ok {
			data := secret.Data
			if data == nil {
				data = map[string][]byte{}
			}
			send(ctx, contents, Content{Data: data, Secret: secret})
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    sendObject,
		UpdateFunc: func(_, object any) { sendObject(object) },
		DeleteFunc: func(any) { send(ctx, contents, Content{}) },
	}
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		send(ctx, contents, Content{Err: err})
	})
	if err == nil {
		_, err = informer.AddEventHandler(handler)
	}
	if err != nil { // The informer has ended, which it has not.
		send(ctx, contents, Content{Err: err})
		return
	}
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) && len(informer.GetStore().List()) == 0 {
			send(ctx, contents, Content{})
		}
	}()
	informer.RunWithContext(ctx)
}

// send reports whether the content was sent before ctx ended.
func send(ctx context.Context, contents chan<- Content, content Content) bool {
	select {
	case <-ctx.Done():
		return false
	case contents <- content:
		return true
	}
}
