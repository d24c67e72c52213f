// Proto makes the Go code of internal/wire from the .proto files: it parses them
// and hands them to the two plugins that tools/go.mod names. So nothing but Go is
// needed, and everybody gets the same code.
//
//	cd tools && go run ./proto ../proto ../internal/wire bide/v1/store.proto
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// plugins, and what each is told: all goes into one package.
var plugins = map[string]string{
	"protoc-gen-go":         "paths=source_relative",
	"protoc-gen-connect-go": "paths=source_relative,package_suffix",
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: proto SOURCES TARGET FILE...")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "proto:", err)
		os.Exit(1)
	}
}

func generate(sources, target string, files []string) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{sources}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // for the comments
	}
	compiled, err := compiler.Compile(context.Background(), files...)
	if err != nil {
		return err
	}
	var all []*descriptorpb.FileDescriptorProto
	for _, f := range compiled {
		all = append(all, protoutil.ProtoFromFileDescriptor(f))
	}
	for plugin, parameter := range plugins {
		written, err := call(plugin, &pluginpb.CodeGeneratorRequest{FileToGenerate: files, Parameter: &parameter, ProtoFile: all})
		if err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
		for _, f := range written {
			if err := os.WriteFile(filepath.Join(target, filepath.Base(f.GetName())), []byte(f.GetContent()), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func call(plugin string, req *pluginpb.CodeGeneratorRequest) ([]*pluginpb.CodeGeneratorResponse_File, error) {
	in, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &resp); err != nil {
		return nil, err
	}
	if resp.Error != nil {
		return nil, errors.New(resp.GetError())
	}
	return resp.GetFile(), nil
}
