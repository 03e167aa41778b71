# For a tap. `python -m release.fill_recipes` puts values in the place of what stands between at signs.
class Waifu2xKernels < Formula
  include Language::Python::Virtualenv

  desc "Upscale and denoise pictures with waifu2x networks"
  homepage "https://github.com/OWNER/waifu2x-kernels"
  url "https://github.com/OWNER/waifu2x-kernels/releases/download/v@VERSION@/waifu2x_kernels-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license "MIT"

  depends_on "python@3.13"

  # Libraries come as wheels: Numba from source would need an LLVM of its own.
  def install
    virtualenv_create(libexec, "python3.13", without_pip: false)
    system libexec/"bin/python", "-m", "pip", "install", "--only-binary=:all:", "--no-binary=waifu2x-kernels",
           "#{buildpath}[formats,video]"
    bin.install_symlink libexec/"bin/waifu2x"
    man1.install_symlink Dir[libexec/"share/man/man1/*.1"]
    generate_completions_from_executable(bin/"waifu2x", "completion", shells: [:bash, :zsh, :fish])
  end

  test do
    system bin/"waifu2x", "upscale", "--backend", "numpy", "-m", "vgg_7", test_fixtures("test.png"), "large.png"
    assert_path_exists testpath/"large.png"
  end
end
