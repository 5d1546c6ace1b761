module github.com/weirlabs/weir

go 1.26.0
