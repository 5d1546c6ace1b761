module github.com/weirlabs/weir/cmd/weir

go 1.26.0

require github.com/weirlabs/weir v0.0.0

replace github.com/weirlabs/weir => ../..
