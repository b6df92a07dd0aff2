// Frozen decoders in C++: a decoder that closes itself, and exceptions in place of statuses.
//
// For C++17 and later, beside randsmap.h, where the functions are described.
#pragma once
#include <randsmap.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace randsmap {

class Error : public std::runtime_error {
public:
    explicit Error(int status) : std::runtime_error(randsmap_strerror(status)), status(status) {}
    const int status;
};

inline void check(int status)
{
    if (status != RANDSMAP_OK) {
        throw Error(status);
    }
}

// Any number of threads may use one decoder, each with its own workspace. Arrays hold one point or field a row.
class Decoder {
public:
    explicit Decoder(const std::string &path)
    {
        randsmap_decoder *opened = nullptr;
        check(randsmap_open(path.c_str(), &opened));
        decoder_.reset(opened);
        info_.size = sizeof info_;
        check(randsmap_info(opened, &info_));
    }

    std::size_t n_components() const { return static_cast<std::size_t>(info_.n_components); }
    std::size_t n_cells() const { return static_cast<std::size_t>(info_.n_cells); }

    // For n rows of decode and encode, n directions of decode_jvp, and vjp.
    std::vector<double> workspace(std::ptrdiff_t n = 1) const
    {
        return std::vector<double>(static_cast<std::size_t>(randsmap_work(decoder_.get(), n)));
    }

    void decode(const double *z, std::ptrdiff_t n, double *fields, std::vector<double> &work) const
    {
        check(randsmap_decode(decoder_.get(), z, n, fields, work.data()));
    }

    // Latent points z of n fields, with the image's own number of steps of projection or another.
    void encode(const double *fields, std::ptrdiff_t n, double *z, std::vector<double> &work,
                std::ptrdiff_t steps = -1) const
    {
        check(randsmap_encode_steps(decoder_.get(), fields, n, steps, z, work.data()));
    }

    // The field at z, and its derivatives along the p rows of v.
    void decode_jvp(const double *z, const double *v, std::ptrdiff_t p, double *field, double *Jv,
                    std::vector<double> &work) const
    {
        check(randsmap_decode_jvp(decoder_.get(), z, v, p, field, Jv, work.data()));
    }

    // The gradient of u . f in z.
    void vjp(const double *z, const double *u, double *gradient, std::vector<double> &work) const
    {
        check(randsmap_vjp(decoder_.get(), z, u, gradient, work.data()));
    }

    // How far n fields, decoded at z, may be off.
    void error(const double *z, const double *fields, std::ptrdiff_t n, double coverage, double *errors) const
    {
        check(randsmap_error(decoder_.get(), z, fields, n, coverage, 0, errors));
    }

private:
    struct Close {
        void operator()(randsmap_decoder *decoder) const { randsmap_close(decoder); }
    };
    std::unique_ptr<randsmap_decoder, Close> decoder_;
    randsmap_info_t info_{};
};

} // namespace randsmap
